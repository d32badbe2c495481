import { type Peer, SLOTS } from './peer.ts'

/**
 * client-go's delaying work queue in one process: a key is dirty, in process, or both, and never queued twice. A crash
 * loses all of it, and a new process has to list everything again.
 */
export function openMemory(): Peer {
  const dirty = new Set<string>()
  const inProcess = new Set<string>()
  const queue = new Fifo()
  const timers = new Map<string, NodeJS.Timeout>()
  let free = 0
  let run: (key: string) => Promise<number | undefined> = async () => undefined

  function add(key: string): void {
    if (dirty.has(key)) return
    dirty.add(key)
    if (inProcess.has(key)) return
    queue.push(key)
    startSome()
  }

  /** The earlier time wins, as in client-go. */
  function addAfter(key: string, ms: number): void {
    if (timers.has(key)) return
    const fire = () => {
      timers.delete(key)
      add(key)
    }
    timers.set(key, setTimeout(fire, ms))
  }

  function startSome(): void {
    while (free > 0) {
      const key = queue.shift()
      if (key === undefined) return
      free--
      dirty.delete(key)
      inProcess.add(key)
      void process(key)
    }
  }

  async function process(key: string): Promise<void> {
    const waitMs = await run(key)
    inProcess.delete(key)
    if (dirty.has(key)) queue.push(key)
    else if (waitMs !== undefined) addAfter(key, waitMs)
    free++
    startSome()
  }

  return {
    enqueue: async (key) => add(key),
    async serve(work) {
      run = work
      free = SLOTS
      startSome()
    },
    async close() {
      for (const timer of timers.values()) clearTimeout(timer)
    },
  }
}

/** First in, first out, without moving what waits. */
class Fifo {
  #items: string[] = []
  #first = 0

  push(item: string): void {
    this.#items.push(item)
  }

  shift(): string | undefined {
    const item = this.#items[this.#first++]
    if (this.#first < this.#items.length) return item
    this.#items = []
    this.#first = 0
    return item
  }
}
