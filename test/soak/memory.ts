import { readFileSync } from 'node:fs'
import type { ProcessGroup } from '#local'
import type { Memory } from './judge/leaks.ts'

/** Samples the resident memory of some processes; a process that was started anew begins anew. */
export class MemoryWatch {
  readonly #processes: ProcessGroup
  readonly #names: readonly string[]
  readonly #lives = new Map<string, Memory & { samples: number[]; pid: number }>()

  constructor(processes: ProcessGroup, names: readonly string[]) {
    this.#processes = processes
    this.#names = names
  }

  sample(): void {
    for (const name of this.#names) {
      const pid = this.#processes.get(name)?.pid
      const size = pid === undefined ? undefined : residentMiB(pid)
      if (pid === undefined || size === undefined) continue
      const life = this.#lives.get(name)
      if (life?.pid === pid) life.samples.push(size)
      else this.#lives.set(name, { name, pid, samples: [size] })
    }
  }

  /** Of the last life of each. */
  get memories(): Memory[] {
    return [...this.#lives.values()]
  }
}

/** undefined: it is gone. */
function residentMiB(pid: number): number | undefined {
  try {
    const size = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
    return size === undefined ? undefined : Number(size) / 1024
  } catch {
    return undefined
  }
}
