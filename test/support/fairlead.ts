import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

export const BIN = fileURLToPath(new URL('../../cli/bin.js', import.meta.url))

/** What node is given first, so that the process goes with the one that started it. */
export const LEASHED = ['--import', new URL('./leash.ts', import.meta.url).href]

/** A line of the process's own log. */
export interface LogLine {
  level: string
  time: string
  msg: string
  step?: string
  reconciler?: string
  key?: string
  result?: string
  leaseUntil?: string
  [field: string]: unknown
}

export interface FairleadProcess extends AsyncDisposable {
  pid: number
  logs: LogLine[]
  /** Resolves with the first line, past or future, that matches. */
  logged(matches: (line: LogLine) => boolean): Promise<LogLine>
  /** What it has printed as its result, by line. */
  output: string[]
  kill(signal: NodeJS.Signals): void
  exited: Promise<{ code: number | null; signal: NodeJS.Signals | null; at: number }>
}

const LAST_LINES_MS = 2000

/** `fairlead …` as a process of its own, with the log of every run; killed at the end of the block. */
export function startFairlead(args: string[], env: Record<string, string>, bin = BIN): FairleadProcess {
  const child = spawn(process.execPath, [...LEASHED, bin, ...args], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], LOG_LEVEL: 'debug', LOG_FORMAT: 'json', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output: string[] = []
  createInterface({ input: child.stdout }).on('line', (line) => output.push(line))
  const logs: LogLine[] = []
  const waiting = new Set<{ matches: (line: LogLine) => boolean; resolve: (line: LogLine) => void }>()
  createInterface({ input: child.stderr }).on('line', (text) => {
    const line = parseLine(text)
    logs.push(line)
    for (const waiter of waiting) {
      if (!waiter.matches(line)) continue
      waiting.delete(waiter)
      waiter.resolve(line)
    }
  })
  const exited = exitOf(child)
  return {
    pid: child.pid ?? 0,
    logs,
    output,
    exited,
    kill: (signal) => void child.kill(signal),
    async logged(matches) {
      const past = logs.find(matches)
      if (past) return past
      const future = new Promise<LogLine>((resolve) => waiting.add({ matches, resolve }))
      const ended = exited.then(({ code, signal }) => {
        throw new Error(`fairlead ${args.join(' ')} ended (${code ?? signal}): ${JSON.stringify(logs.slice(-5))}`)
      })
      return Promise.race([future, ended])
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await exited
    },
  }
}

async function exitOf(
  child: ChildProcess,
): Promise<{ code: number | null; signal: NodeJS.Signals | null; at: number }> {
  const closed = once(child, 'close')
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
  const at = Date.now()
  // Its last lines may come later. A process that it has started may hold the pipe open.
  await Promise.race([closed, sleep(LAST_LINES_MS, undefined, { ref: false })])
  return { code, signal, at }
}

function parseLine(text: string): LogLine {
  try {
    return JSON.parse(text) as LogLine
  } catch {
    return { level: 'raw', time: new Date().toISOString(), msg: text }
  }
}

export interface Finished {
  code: number | null
  stdout: string
  stderr: string
}

/** Shorter than the limit of a test, which would not say what the process has printed. */
const ENDS_WITHIN_MS = 240_000

/** `fairlead …` to its end. */
export async function fairlead(args: string[], env: Record<string, string> = {}, bin = BIN): Promise<Finished> {
  const child = spawn(process.execPath, [...LEASHED, bin, ...args], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  try {
    const [code] = (await once(child, 'close', { signal: AbortSignal.timeout(ENDS_WITHIN_MS) })) as [number | null]
    return { code, stdout, stderr }
  } catch {
    const state = child.exitCode === null ? 'it has not ended' : 'it has ended, and its output is held open'
    child.kill('SIGKILL')
    throw new Error(`fairlead ${args.join(' ')}: not within ${ENDS_WITHIN_MS} ms: ${state}: ${stdout}${stderr}`)
  }
}
