import type { JetStream } from '#jetstream'
import type { Names } from './names.ts'
import type { Lane } from './record.ts'
import type { QueueLog } from './types.ts'

/** A lane whose line is so long that its worker has to know what waits further back. */
export interface LongLine {
  readonly fn: string
  readonly lane: Lane
  /** A token of it, in stream order within one look. */
  note(key: string, sequence: number): void
}

interface Range {
  from: number
  to: number
}

const PAGE_SIZE = 250

/**
 * Reads on in the stream beyond what the consumers of this process have delivered, once for all of its long lines. The
 * whole stream is read: with a filter nats-server 2.15 counts what matches for each page, which takes it ten times as
 * long and stops writers meanwhile.
 */
export class ReadAhead {
  readonly #js: JetStream
  readonly #names: Names
  readonly #log: QueueLog
  readonly #lines = new Set<LongLine>()
  /** Where the next look begins; undefined while no line is long. */
  #next: number | undefined
  /** What lines that became long later have missed. */
  #missed: Range[] = []
  #reading: Promise<void> | undefined

  constructor({ js, names, log }: { js: JetStream; names: Names; log: QueueLog }) {
    this.#js = js
    this.#names = names
    this.#log = log
  }

  /** A line has become long, and its tokens have been delivered up to this sequence. */
  join(line: LongLine, delivered: number): void {
    this.#lines.add(line)
    const from = delivered + 1
    if (this.#next === undefined) this.#next = from
    else if (from < this.#next) this.#missed.push({ from, to: this.#next })
    this.look()
  }

  leave(line: LongLine): void {
    this.#lines.delete(line)
    if (this.#lines.size > 0) return
    this.#next = undefined
    this.#missed = []
  }

  /** Notes what has been stored since the last look. */
  look(): void {
    this.#reading ??= this.#read()
      .catch((error: unknown) =>
        this.#log.debug({ err: error }, 'could not read ahead in the stream: the next look tries again'),
      )
      .finally(() => {
        this.#reading = undefined
      })
  }

  async #read(): Promise<void> {
    for (let [range] = this.#missed; range !== undefined; [range] = this.#missed) {
      await this.#note(range, (next) => void (range.from = next))
      this.#missed = this.#missed.filter((one) => one !== range)
    }
    if (this.#next === undefined) return
    await this.#note({ from: this.#next, to: Number.POSITIVE_INFINITY }, (next) => {
      if (this.#next !== undefined) this.#next = next
    })
  }

  async #note({ from, to }: Range, advance: (next: number) => void): Promise<void> {
    const { stream } = this.#names
    for await (const { subject, sequence } of this.#js.scan(stream, '>', { first: from, pageSize: PAGE_SIZE })) {
      if (sequence >= to || this.#lines.size === 0) return
      const place = this.#names.placeOf(subject)
      if (place?.kind === 'token')
        for (const line of this.#lines)
          if (line.fn === place.fn && line.lane === place.lane) line.note(place.key, sequence)
      advance(sequence + 1)
    }
  }
}
