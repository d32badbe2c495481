import { createReadStream, openSync, writeSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

/** The reported end of a soaked run. */
export type Outcome = 'done' | 'requeue' | 'error' | 'terminal'

/** What a process writes down outside of NATS, so that it can be judged. `at`: {@link monotonicMs}. */
export type Note =
  | { note: 'up'; at: number; pid: number; name: string }
  | { note: 'start'; at: number; pid: number; run: string; key: string; owner: string }
  /** The lease was asked after `at`, and stood. */
  | { note: 'held'; at: number; run: string }
  /** `dueInMs`: when the run asked to be run again. */
  | { note: 'end'; at: number; run: string; held: boolean; outcome: Outcome; dueInMs?: number }
  | { note: 'stored'; at: number; run: string; result: 'finished' | 'fenced' }
  | { note: 'memory'; at: number; name: string; pid: number; heapMiB: number; residentMiB: number }
  /** `from`: before the call; `at`: when it had been accepted. */
  | { note: 'enqueued'; from: number; at: number; key: string; lane: 'high' | 'low' }

/** The same clock for all processes of a machine, whatever happens to the time of day. */
export const monotonicMs = (): number => Number(process.hrtime.bigint() / 1000n) / 1000

/** Appends; each line is in the file when this returns, so that kill -9 takes none along. */
export function diaryIn(dir: string, name: string): (note: Note) => void {
  const file = openSync(join(dir, `${name}.diary`), 'a')
  return (note) => void writeSync(file, `${JSON.stringify(note)}\n`)
}

const MEMORY_EVERY_MS = 5000

/** Notes the memory from now on. With `--expose-gc`, garbage does not count. */
export function noteMemory(note: (note: Note) => void, name: string): void {
  const { pid } = process
  setInterval(() => {
    globalThis.gc?.()
    const { heapUsed, external, rss } = process.memoryUsage()
    note({
      note: 'memory',
      at: monotonicMs(),
      name,
      pid,
      heapMiB: (heapUsed + external) / 2 ** 20,
      residentMiB: rss / 2 ** 20,
    })
  }, MEMORY_EVERY_MS).unref()
}

/** What all processes wrote; a line that a kill cut off is left out. */
export async function* readDiaries(dir: string): AsyncGenerator<Note> {
  for (const file of (await readdir(dir)).filter((name) => name.endsWith('.diary')))
    for await (const line of createInterface({ input: createReadStream(join(dir, file)) })) {
      const note = parse(line)
      if (note) yield note
    }
}

function parse(line: string): Note | undefined {
  try {
    return JSON.parse(line) as Note
  } catch {
    return undefined
  }
}
