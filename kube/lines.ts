import { ApiAnswerError } from './errors.ts'

/** The largest object that etcd takes by default is 1.5 MiB. */
const MAX_LINE_BYTES = 64 * 1024 * 1024
const NEWLINE = 0x0a

/**
 * Cuts bytes into lines wherever the chunks end, also in the middle of a character: bytes are searched, only whole
 * lines are decoded.
 */
export class LineCutter {
  #pending: Buffer[] = []
  #pendingBytes = 0

  /** The lines that this chunk completes, without their line ends. */
  push(chunk: Buffer): string[] {
    const lines: string[] = []
    let start = 0
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      lines.push(this.#complete(chunk.subarray(start, end)))
      start = end + 1
    }
    if (start < chunk.length) this.#keep(chunk.subarray(start))
    return lines
  }

  /** Bytes of a line that has not ended. */
  get pendingBytes(): number {
    return this.#pendingBytes
  }

  #complete(end: Buffer): string {
    if (this.#pendingBytes === 0) return end.toString()
    const line = Buffer.concat([...this.#pending, end]).toString()
    this.#pending = []
    this.#pendingBytes = 0
    return line
  }

  #keep(part: Buffer): void {
    this.#pending.push(part)
    this.#pendingBytes += part.length
    if (this.#pendingBytes > MAX_LINE_BYTES) {
      throw new ApiAnswerError(`a line of the watch is longer than ${MAX_LINE_BYTES} bytes`)
    }
  }
}
