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

interface Reading {
  /** Where the next look begins. */
  next: number
  /** What lines that became long later have missed. */
  missed: Range[]
  isBusy: boolean
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
  /** Undefined while no line is long. */
  #reading: Reading | undefined

  constructor({ js, names, log }: { js: JetStream; names: Names; log: QueueLog }) {
    this.#js = js
    this.#names = names
    this.#log = log
  }

  /** A line has become long, and its tokens have been delivered up to this sequence. */
  join(line: LongLine, delivered: number): void {
    this.#lines.add(line)
    const from = delivered + 1
    const reading = (this.#reading ??= { next: from, missed: [], isBusy: false })
    if (from < reading.next) reading.missed.push({ from, to: reading.next })
    this.look()
  }

  leave(line: LongLine): void {
    this.#lines.delete(line)
    if (this.#lines.size === 0) this.#reading = undefined
  }

  /** Notes what has been stored since the last look. */
  look(): void {
    const reading = this.#reading
    if (reading === undefined || reading.isBusy) return
    reading.isBusy = true
    this.#read(reading)
      .catch((error: unknown) =>
        this.#log.debug({ err: error }, 'could not read ahead in the stream: the next look tries again'),
      )
      .finally(() => {
        reading.isBusy = false
      })
  }

  async #read(reading: Reading): Promise<void> {
    for (let [range] = reading.missed; range !== undefined; [range] = reading.missed) {
      const { to } = range
      await this.#note(reading, range.from, to, (next) => void (range.from = next))
      reading.missed.shift()
    }
    await this.#note(reading, reading.next, Number.POSITIVE_INFINITY, (next) => void (reading.next = next))
  }

  async #note(reading: Reading, from: number, to: number, advance: (next: number) => void): Promise<void> {
    const { stream } = this.#names
    for await (const { subject, sequence } of this.#js.scan(stream, '>', { first: from, pageSize: PAGE_SIZE })) {
      if (sequence >= to || this.#reading !== reading) return
      const place = this.#names.placeOf(subject)
      if (place?.kind === 'token')
        for (const line of this.#lines)
          if (line.fn === place.fn && line.lane === place.lane) line.note(place.key, sequence)
      advance(sequence + 1)
    }
  }
}
