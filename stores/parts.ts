import { forEachAtMost } from '#primitives'

/** S3 takes 10,000 parts, so that an object may have 156 GiB; ABS takes 50,000. */
export const PART_BYTES = 16 * 1024 * 1024
/** Parts in memory: those being sent and the one being filled. */
export const PARTS_UNDER_WAY = 4

export interface Part {
  /** From 1. */
  number: number
  /** Of its first byte in the object. */
  offset: number
  bytes: Buffer
  isLast: boolean
  /** Gives the memory back: to be called once, when the bytes are needed no longer. */
  release: () => void
}

/**
 * Cuts a stream into parts of one size; the last one may be smaller, and is empty only if the stream is. A part is the
 * last one if the stream has ended, so the generator waits for more before it yields a full one. Memory is used again.
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
 * Sends the parts of a stream, some side by side. Resolves with the size of the whole. Rejects with the first failure, after
 * it has aborted the others.
 */
export async function sendParts(
  source: AsyncIterable<Uint8Array>,
  signal: AbortSignal | undefined,
  send: (part: Part, signal: AbortSignal) => Promise<void>,
): Promise<number> {
  const failed = new AbortController()
  const signals = signal === undefined ? failed.signal : AbortSignal.any([signal, failed.signal])
  let size = 0
  try {
    await forEachAtMost(PARTS_UNDER_WAY, partsOf(source), async (part) => {
      size += part.bytes.length
      await send(part, signals)
      part.release()
    })
    return size
  } catch (error) {
    failed.abort(error)
    throw error
  }
}
