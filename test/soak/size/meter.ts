import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { cpuMsOf, residentMiBOf } from '../../support/usage.ts'

/** A process that is measured. */
export interface Metered {
  name: string
  pid: () => number
}

export interface Usage {
  /** Percent of one core. */
  cpu: number
  /** MiB. */
  memory: number
}

/** CPU since the last look, and memory, of several processes. */
export class Meter {
  readonly #processes: Metered[]
  readonly #before = new Map<string, { pid: number; cpu: number }>()
  #at = performance.now()

  constructor(processes: Metered[]) {
    this.#processes = processes
  }

  take(): Record<string, Usage> {
    const now = performance.now()
    const elapsed = now - this.#at
    this.#at = now
    return Object.fromEntries(
      this.#processes.map(({ name, pid }) => {
        const id = pid()
        const before = this.#before.get(name)
        const cpu = cpuMsOf(id)
        this.#before.set(name, { pid: id, cpu })
        const used = cpu - (before?.pid === id ? before.cpu : 0)
        return [name, { cpu: Math.round((used / elapsed) * 100), memory: Math.round(residentMiBOf(id)) }]
      }),
    )
  }
}

export const usageText = (usage: Record<string, Usage>): string =>
  Object.entries(usage)
    .map(([name, { cpu, memory }]) => `${name} ${cpu} % ${memory} MiB`)
    .join(', ')

/** What a folder takes on the disk, MiB. */
export const diskMiBOf = (...path: string[]): number =>
  Math.round(Number(execFileSync('du', ['-sk', join(...path)], { encoding: 'utf8' }).split('\t')[0]) / 1024)
