import { ApiAnswerError } from './errors.ts'

/** The limit of a line. By default etcd stores objects up to 1.5 MiB. */
const MAX_LINE_BYTES = 64 * 1024 * 1024
const NEWLINE = 0x0a

/**
 * Cuts bytes into lines. A chunk may end anywhere, also within a character: the search is for bytes, and only complete
 * lines are decoded.
 */
export class LineCutter {
  #pending: Buffer[] = []
  #pendingBytes = 0

  /** Returns the lines that this chunk completes, without their line ends. */
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

  /** The bytes of the incomplete line. */
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
