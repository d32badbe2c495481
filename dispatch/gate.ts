import { Turns } from './turns.ts'

/** Writes of one reconciler, lower ones first: what makes things exist, what removes them, what only tells of them. */
export const PRIORITY = { create: 0, delete: 1, status: 2 } as const
export type Priority = (typeof PRIORITY)[keyof typeof PRIORITY]

/** For whom a request is made, and what it is. */
export interface Caller {
  reconciler: string
  kind: 'read' | 'event' | Priority
}

/** A request that was not wanted any more before its turn came: it was not sent. */
export const DROPPED: unique symbol = Symbol('dropped')

export interface GateOptions {
  signal?: AbortSignal
  /** Aborted: the request leaves the line at once, and is dropped. */
  unwanted?: AbortSignal | undefined
}

type Class = 'read' | 'write' | 'event'

/** Who is next while all of them wait. A turn that its class does not need goes to the first class of FALLBACK that does. */
const CYCLE: readonly Class[] = ['write', 'read', 'write', 'read', 'write', 'read', 'write', 'event']
const FALLBACK: readonly Class[] = ['write', 'read', 'event']

/**
 * The API requests in flight of all reconcilers together. While all wait, four of eight that begin are writes, three are
 * reads and one is an Event; of each class the reconcilers have their turns. Of one reconciler, a status waits for creates
 * and deletes, but for those of one stage of each other key that is held: a key whose status waits sends nothing else.
 */
export class Gate {
  readonly #limit: number
  readonly #waiting: Record<Class, Turns<() => void>> = { read: new Turns(), write: new Turns(), event: new Turns() }
  #inFlight = 0
  #turn = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  get inFlight(): number {
    return this.#inFlight
  }

  get waiting(): number {
    return FALLBACK.reduce((sum, one) => sum + this.#waiting[one].size, 0)
  }

  /** Rejects with the signal's reason when that is aborted before the request began. */
  async run<T>(
    caller: Caller,
    request: () => Promise<T>,
    { signal, unwanted }: GateOptions = {},
  ): Promise<T | typeof DROPPED> {
    signal?.throwIfAborted()
    if (unwanted?.aborted) return DROPPED
    if ((await this.#admission(caller, signal, unwanted)) === DROPPED) return DROPPED
    try {
      return await request()
    } finally {
      this.#inFlight--
      this.#admit()
    }
  }

  #admission(
    { reconciler, kind }: Caller,
    signal?: AbortSignal,
    unwanted?: AbortSignal,
  ): Promise<typeof DROPPED | void> {
    return new Promise((resolve, reject) => {
      const turns = this.#waiting[typeof kind === 'number' ? 'write' : kind]
      const settle = () => {
        signal?.removeEventListener('abort', refuse)
        unwanted?.removeEventListener('abort', drop)
      }
      const leave = () => {
        settle()
        turns.remove(reconciler, start)
      }
      const start = () => (settle(), this.#inFlight++, resolve())
      const refuse = () => (leave(), reject(signal?.reason as Error))
      const drop = () => (leave(), resolve(DROPPED))
      turns.add(reconciler, start, typeof kind === 'number' ? kind : 0)
      signal?.addEventListener('abort', refuse)
      unwanted?.addEventListener('abort', drop)
      this.#admit()
    })
  }

  #admit(): void {
    while (this.#inFlight < this.#limit) {
      const start = this.#next()
      if (start === undefined) return
      start()
    }
  }

  #next(): (() => void) | undefined {
    const whose = [CYCLE[this.#turn] ?? 'write', ...FALLBACK].find((one) => this.#waiting[one].size > 0)
    if (whose === undefined) return undefined
    this.#turn = (this.#turn + 1) % CYCLE.length
    return this.#waiting[whose].take()
  }
}
