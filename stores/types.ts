/** An object in a store. Keys are texts with slashes. Sizes are in bytes. */
export interface StoredObject {
  key: string
  size: number
}

/** With the metadata that it was stored with; names are in lower case. */
export interface DescribedObject extends StoredObject {
  metadata: Metadata
}

export type Metadata = Readonly<Record<string, string>>

export interface PutOptions {
  metadata: Metadata
  /** An object that exists is not replaced: StoreError with the reason `exists`. Default: it is replaced at once. */
  ifAbsent?: boolean
  signal?: AbortSignal | undefined
}

export interface Range {
  /** Of the first byte, from 0. */
  start: number
  /** Default: to the end. */
  length?: number
}

export interface GetOptions {
  range?: Range | undefined
  signal?: AbortSignal | undefined
}

/** One bucket or container. Each method rejects with a StoreError, which names bucket and key, and never a secret. */
export interface Store {
  /** The address for people: `s3://bucket/key`. */
  address(key: string): string
  /**
   * Stores what the source yields, part by part. Nothing is visible under the key before the source has ended. A source
   * that throws, or the signal, leaves what was there before. Holds PARTS_UNDER_WAY parts of PART_BYTES in memory at most.
   * Returns the size.
   */
  put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number>
  /** The bytes, in order. A key that is missing: StoreError with the reason `missing`. */
  get(key: string, options?: GetOptions): AsyncIterable<Uint8Array>
  /** All objects whose keys begin with the prefix, page by page. */
  list(prefix: string): AsyncIterable<StoredObject>
  /** Undefined: the key is missing. */
  head(key: string, signal?: AbortSignal): Promise<DescribedObject | undefined>
  /** Does nothing for a key that is missing. */
  delete(key: string): Promise<void>
}

/** What the store is reached by, beside the address and the credentials of its kind. */
export interface Connection {
  /** URL of the service. Default: that of the provider. */
  endpoint?: string | undefined
  /** PEM of the certificate authorities to trust instead of the public ones. */
  ca?: string | undefined
  /** Objects per answer of a list. Default: 1000. */
  pageSize?: number
}

export const MOST_KEYS = 1000
