/** Frames a gRPC message: one byte for compression, four for the length, then the message. */
export function frame(message: Buffer): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

/** The size limit of a message. Pieces of etcd's snapshots have some ten KiB, its other answers at most a few MiB. */
const MAX_BYTES = 64 * 1024 * 1024

/**
 * Reads the messages in a stream, whose chunks begin and end anywhere. Throws for a message that is compressed or too
 * large.
 */
export async function* framesIn(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const waiting: Buffer[] = []
  let bytes = 0
  let wanted = 5
  for await (const chunk of chunks) {
    waiting.push(chunk)
    bytes += chunk.length
    while (bytes >= wanted) {
      const joined = waiting.length === 1 ? (waiting[0] ?? chunk) : Buffer.concat(waiting)
      const length = lengthOf(joined)
      wanted = 5 + length
      const isWhole = joined.length >= wanted
      if (isWhole) yield joined.subarray(5, wanted)
      waiting.splice(0, waiting.length, isWhole ? joined.subarray(wanted) : joined)
      bytes = isWhole ? joined.length - wanted : joined.length
      if (!isWhole) break
      wanted = 5
    }
  }
  if (bytes > 0) throw new Error('the answer is cut off')
}

function lengthOf(head: Buffer): number {
  if (head[0] !== 0) throw new Error('the answer is compressed, which was not asked for')
  const length = head.readUInt32BE(1)
  if (length > MAX_BYTES) throw new Error(`the answer has a message of ${length} bytes: ${MAX_BYTES} are allowed`)
  return length
}
