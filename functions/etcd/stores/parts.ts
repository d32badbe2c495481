import { type Store, StoreError } from './types.ts'

/** The size of a part. S3 accepts 10,000 parts, so an object may have 156 GiB; ABS accepts 50,000. */
export const PART_BYTES = 16 * 1024 * 1024
/** The number of parts in memory: those being sent and the one being filled. */
export const PARTS_UNDER_WAY = 4

export interface Part {
  /** The number of the part, from 1. */
  number: number
  /** The offset of its first byte in the object. */
  offset: number
  bytes: Buffer
  isLast: boolean
  /** Returns the memory. Call it once, when the bytes are not needed any more. */
  release: () => void
}

/**
 * Cuts a stream into parts of one size. The last part may be smaller, and is empty only if the stream is. The generator
 * waits for more bytes before it yields a full part, because a part is the last one if the stream has ended. Memory is
 * used again.
 */
export async function* partsOf(source: AsyncIterable<Uint8Array>, size = PART_BYTES): AsyncGenerator<Part> {
  const free: Buffer[] = []
  const take = () => free.pop() ?? Buffer.allocUnsafeSlow(size)
  let buffer = take()
  let filled = 0
  let number = 1
  let offset = 0
  const part = (isLast: boolean): Part => {
    const own = buffer
    return { number, offset, bytes: own.subarray(0, filled), isLast, release: () => void free.push(own) }
  }
  for await (const chunk of source) {
    for (let rest = chunk; rest.length > 0; ) {
      if (filled === size) {
        yield part(false)
        number++
        offset += filled
        buffer = take()
        filled = 0
      }
      const piece = rest.subarray(0, size - filled)
      buffer.set(piece, filled)
      filled += piece.length
      rest = rest.subarray(piece.length)
    }
  }
  yield part(true)
}

/**
 * Sends the parts of a stream, several at the same time. Resolves with the total size. Rejects with the first failure,
 * after it has aborted the others.
 */
export async function sendParts(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
  send: (part: Part, signal: AbortSignal) => Promise<void>,
  partBytes = PART_BYTES,
): Promise<number> {
  const failed = new AbortController()
  const signals = signal === undefined ? failed.signal : AbortSignal.any([signal, failed.signal])
  // A generator answers concurrent calls of next() one by one, in order.
  const parts = partsOf(source, partBytes)
  let size = 0
  const sender = async () => {
    for (let next = await parts.next(); next.done !== true; next = await parts.next()) {
      const part = next.value
      signals.throwIfAborted()
      size += part.bytes.length
      await send(part, signals)
      part.release()
    }
  }
  try {
    await Promise.all(Array.from({ length: PARTS_UNDER_WAY }, sender))
    return size
  } catch (error) {
    failed.abort(error)
    // Not awaited: the source may be silent.
    void parts.return(undefined).catch(() => undefined)
    throw error
  }
}

/** The number of lost connections in a row, without a byte between them, after which the read fails. */
const LOST_AT_MOST = 5

/** Reads all bytes of an object. After a lost connection, requests the rest from where it was lost. */
export async function* whole(store: Store, key: string, signal?: AbortSignal): AsyncGenerator<Uint8Array> {
  let start = 0
  for (let lost = 0; ; ) {
    try {
      for await (const chunk of store.get(key, { signal, ...(start > 0 && { range: { start } }) })) {
        yield chunk
        start += chunk.length
        lost = 0
      }
      return
    } catch (error) {
      signal?.throwIfAborted()
      if (!(error instanceof StoreError) || error.reason !== 'unavailable' || ++lost > LOST_AT_MOST) throw error
    }
  }
}
