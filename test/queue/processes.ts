import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { WorkQueue } from '#queue'
import { LEASHED } from '../support/fairlead.ts'
import type { WorkerSettings } from './worker-process.ts'

const program = fileURLToPath(new URL('./worker-process.ts', import.meta.url))

/** Starts a worker process that serves; starts it again while NATS is unreachable. */
export async function startWorker(settings: WorkerSettings): Promise<ChildProcess> {
  for (;;) {
    const args = [...LEASHED, program, JSON.stringify(settings)]
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'ignore'] })
    await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])
    if (child.exitCode === null) return child
  }
}

export async function kill(child: ChildProcess, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill(signal)
  await once(child, 'exit')
}

interface LoggedRun {
  key: string
  owner: string
  version: number
  pid: number
  start: number
  end: number | undefined
  /** When a run without an end had its key no longer. */
  lost?: number
}

/** Versions of keys in files, for worker processes to read, and the log of what they did. */
export class FileWorld {
  readonly dir: string
  readonly versions = new Map<string, number>()
  /** When a process is known to be dead, by the monotonic clock. */
  readonly #deaths = new Map<number, number>()

  constructor(dir: string) {
    mkdirSync(dir, { recursive: true })
    this.dir = dir
  }

  async change(queue: WorkQueue, reconciler: string, key: string, lane: 'high' | 'low' = 'high'): Promise<void> {
    const version = (this.versions.get(key) ?? 0) + 1
    this.versions.set(key, version)
    writeFileSync(`${this.dir}/${key}.new`, String(version))
    renameSync(`${this.dir}/${key}.new`, `${this.dir}/${key}`)
    await queue.enqueue(reconciler, key, { lane })
  }

  died({ pid }: ChildProcess): void {
    if (pid !== undefined) this.#deaths.set(pid, Number(process.hrtime.bigint() / 1000n) / 1000)
  }

  runs(): LoggedRun[] {
    const runs = new Map<string, LoggedRun>()
    const text = existsSync(`${this.dir}/log`) ? readFileSync(`${this.dir}/log`, 'utf8') : ''
    for (const line of text.split('\n')) {
      if (line === '') continue
      const { event, at, ...run } = JSON.parse(line)
      if (event === 'start') runs.set(run.owner, { ...run, start: at, end: undefined })
      const started = runs.get(run.owner)
      if (event === 'end' && started) started.end = at
      if (event === 'lost' && started) started.lost = at
    }
    return [...runs.values()]
  }

  /** Highest version that a completed run has read, of every key. */
  dealtWith(): Map<string, number> {
    const dealtWith = new Map<string, number>()
    for (const { key, version, end } of this.runs())
      if (end !== undefined) dealtWith.set(key, Math.max(version, dealtWith.get(key) ?? 0))
    return dealtWith
  }

  /** Runs of one key that began while another was under way in a living process. */
  overlaps(): string[] {
    const runs = this.runs()
    const endOf = (run: LoggedRun) => run.end ?? run.lost ?? this.#deaths.get(run.pid) ?? Number.POSITIVE_INFINITY
    return runs.flatMap((run) =>
      runs
        .filter((other) => other.key === run.key && other.start > run.start && other.start < endOf(run))
        .map((other) => `${run.key}: ${run.pid} and ${other.pid}`),
    )
  }
}
