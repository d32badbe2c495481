import { createWriteStream, type WriteStream } from 'node:fs'
import type { Msg } from 'nats'
import { connectJetStream, type JetStream } from '#nats'
import { Names } from '../../streams/queue/wire.ts'
import { addStored, type History, noHistory, type Stored } from './judge/history.ts'
import { PREFIX, SEEN, STREAM } from './terms.ts'

/** What comes by different servers is put in order within so long. */
const ORDER_MS = 3000
/** The limit of missing sequences that are read from the stream at once, if they still exist. */
const MOST_READ = 500

/**
 * The history of the queue's stream, as its leader repeats each message that it has stored. Listens at every server, and
 * after a gap reads what of it is still stored.
 */
export class Observer implements AsyncDisposable {
  readonly history: History
  readonly #connections: JetStream[]
  readonly #file: WriteStream
  readonly #waiting = new Map<number, Stored>()
  readonly #timer: NodeJS.Timeout
  #working = Promise.resolve()

  private constructor(connections: JetStream[], file: string) {
    this.#connections = connections
    this.history = noHistory(new Names(PREFIX), { replicated: connections.length > 1 })
    this.#file = createWriteStream(file)
    for (const js of connections)
      js.nc.subscribe(`${SEEN}.>`, { callback: (error, message) => (error ? undefined : this.#see(message)) })
    this.#timer = setInterval(() => this.#takeUp(Date.now() - ORDER_MS), 500)
  }

  static async open(urls: readonly string[], file: string): Promise<Observer> {
    const connections = await Promise.all(urls.map((servers) => connectJetStream({ servers, name: 'observer' })))
    const observer = new Observer(connections, file)
    await Promise.all(connections.map(({ nc }) => nc.flush()))
    return observer
  }

  /** Takes up all that was seen so far. */
  async settle(): Promise<History> {
    this.#takeUp(Number.POSITIVE_INFINITY)
    await this.#working
    return this.history
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer)
    await this.#working
    await Promise.all(this.#connections.map((js) => js.close()))
    await new Promise((closed) => this.#file.end(closed))
  }

  #see(message: Msg): void {
    const headers = Object.fromEntries([...(message.headers ?? [])].map(([name, [value = '']]) => [name, value]))
    const stored = storedFrom(headers)
    if (stored.sequence > this.history.lastSequence) this.#waiting.set(stored.sequence, stored)
  }

  #takeUp(before: number): void {
    this.#working = this.#working.then(async () => {
      const ready = [...this.#waiting.values()].filter(({ at }) => at <= before)
      for (const stored of ready.toSorted((a, b) => a.sequence - b.sequence)) {
        for (const found of await this.#stillThere(this.history.lastSequence + 1, stored.sequence)) this.#add(found)
        this.#add(stored)
      }
    })
  }

  #add(stored: Stored): void {
    this.#waiting.delete(stored.sequence)
    addStored(this.history, stored)
    this.#file.write(`${JSON.stringify(stored)}\n`)
  }

  async #stillThere(from: number, to: number): Promise<Stored[]> {
    const found: Stored[] = []
    for (let sequence = from; sequence < Math.min(to, from + MOST_READ); sequence++) {
      const message = await this.#read(sequence)
      if (message) found.push({ ...message, at: Math.floor(message.storedAt) })
    }
    return found
  }

  async #read(sequence: number) {
    for (const js of this.#connections)
      try {
        return await js.bySequence(STREAM, sequence)
      } catch {
        // That server is away: the next one may not be.
      }
    return undefined
  }
}

function storedFrom(headers: Record<string, string>): Stored {
  return {
    sequence: Number(headers['Nats-Sequence']),
    subject: headers['Nats-Subject'] ?? '',
    at: Date.parse(headers['Nats-Time-Stamp'] ?? ''),
    headers,
  }
}
