import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { PeerSettings } from './peer.ts'
import type { Order, Told } from './process.ts'

const program = fileURLToPath(new URL('./process.ts', import.meta.url))

/** One process of a peer; gone at the end of the block, without farewell. */
export class Member implements AsyncDisposable {
  readonly #child: ChildProcess

  private constructor(child: ChildProcess) {
    this.#child = child
  }

  static async start(settings: PeerSettings): Promise<Member> {
    const member = new Member(fork(program, [JSON.stringify(settings)]))
    await member.told(({ ready }) => ready)
    return member
  }

  order(order: Order): void {
    this.#child.send(order)
  }

  /** Resolves with the first later message for which `pick` returns a value. */
  told<T>(pick: (told: Told) => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const listener = (told: Told) => {
        const picked = pick(told)
        if (picked === undefined) return
        this.#child.off('message', listener)
        this.#child.off('exit', ended)
        resolve(picked)
      }
      const ended = () => reject(new Error('a process under measurement ended'))
      this.#child.on('message', listener)
      this.#child.once('exit', ended)
    })
  }

  async warmUp(keys: number): Promise<void> {
    this.order({ do: 'warm', keys })
    await this.told(({ warm }) => warm)
  }

  async enqueue(keys: number): Promise<void> {
    this.order({ do: 'enqueue', keys })
    await this.told(({ enqueued }) => enqueued)
  }

  async usage(): Promise<{ cpuMs: number; rssMiB: number }> {
    this.order({ do: 'usage' })
    return this.told(({ usage }) => usage)
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await gone
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill()
  }
}

/** Until all of them together have made so many runs. */
export function runsOf(members: readonly Member[], wanted: number): Promise<void> {
  const counts = new Map<Member, number>()
  const watch = async (member: Member): Promise<void> => {
    for (;;) {
      counts.set(member, await member.told(({ runs }) => runs))
      if ([...counts.values()].reduce((sum, one) => sum + one, 0) >= wanted) return
    }
  }
  return Promise.race(members.map(watch))
}
