/** An object in a store. Keys are texts with slashes. Sizes are in bytes. */
export interface StoredObject {
  key: string
  size: number
}

/** An object with the metadata that it was stored with. Their names are in lower case. */
export interface DescribedObject extends StoredObject {
  metadata: Metadata
}

export type Metadata = Readonly<Record<string, string>>

export interface PutOptions {
  metadata: Metadata
  /**
   * True: an existing object is not replaced, and put() throws StoreError with the reason `exists`. Default: it is
   * replaced atomically.
   */
  ifAbsent?: boolean
  signal?: AbortSignal
}

export interface Range {
  /** The offset of the first byte, from 0. */
  start: number
  /** The number of bytes. Default: to the end. */
  length?: number
}

export interface GetOptions {
  range?: Range
  signal?: AbortSignal
}

/** One bucket or container. Each method rejects with a StoreError, which names bucket and key, and never a secret. */
export interface Store {
  /** Returns the address that users see: `s3://bucket/key`. */
  address(key: string): string
  /**
   * Stores the bytes of the source, part by part, and returns the size. The object becomes visible only after the
   * source has ended. If the source throws, or the signal aborts, the former object stays. Holds at most
   * PARTS_UNDER_WAY parts of PART_BYTES in memory.
   */
  put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number>
  /** Reads the bytes, in order. Throws StoreError with the reason `missing` if the key does not exist. */
  get(key: string, options?: GetOptions): AsyncIterable<Uint8Array>
  /** Lists all objects whose keys begin with the prefix, page by page. */
  list(prefix: string): AsyncIterable<StoredObject>
  /** Returns the object. Undefined: the key does not exist. */
  head(key: string, signal?: AbortSignal): Promise<DescribedObject | undefined>
  /** Deletes an object. Does nothing if the key does not exist. */
  delete(key: string): Promise<void>
}

/** The connection settings of a store, besides the address and the credentials of its kind. */
export interface Connection {
  /** The URL of the service. Default: that of the provider. */
  endpoint?: string
  /** The PEM of the certificate authorities to trust instead of the public ones. */
  ca?: string
  /** The number of objects per answer of a list. Default: 1000. */
  pageSize?: number
}

export const MOST_KEYS = 1000

/** `refused`: the store answered with an error. `unavailable`: it did not answer in time after all retries. */
export type StoreReason = 'exists' | 'missing' | 'refused' | 'unavailable'

/** Thrown if the store did not fulfil a request. The message names bucket, key and a fix. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly reason: StoreReason

  constructor(reason: StoreReason, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}

/** Returns the value of the header Range. */
export const rangeHeader = ({ start, length }: Range): string =>
  `bytes=${start}-${length === undefined ? '' : start + length - 1}`

/** Returns undefined instead of the error of a missing object. */
export async function unlessMissing<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked
  } catch (error) {
    if (error instanceof StoreError && error.reason === 'missing') return undefined
    throw error
  }
}
