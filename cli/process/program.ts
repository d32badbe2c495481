import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { type RunLog, TerminalError } from '#contracts'
import { Budget, endedWithin } from '#primitives'
import { UsageError } from './exit.ts'

/** A program, and the limits of its processes. */
export interface ProgramOptions {
  /** The program and its arguments, with spaces between. No shell reads them. */
  command: string
  /** The program stays, and answers each line with one line. Otherwise each call starts it. */
  lines: boolean
  /** The longest time of a call. */
  timeoutSeconds: number
  /** The number of its processes at the same time. */
  concurrency: number
  /** Names of variables of this process that the program gets beside those of PASSED. */
  variables: readonly string[]
  /** Where it runs. Left out: where this process runs. */
  folder?: string
  /** Its output is a log, and no answer. */
  isLogging?: boolean
}

interface ProgramCall {
  signal: AbortSignal
  log: RunLog
  /** Variables of this call, for a program that does not stay. */
  variables?: Record<string, string>
}

/** Where the program runs, and in which language. All other variables may be secrets, such as those of a cluster. */
const PASSED = /^(?:PATH|HOME|USER|LANG|LC_[A-Z]+|TZ|TMPDIR)$/
/** As for answers over HTTP. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024
/** The log lines of a call. */
const MAX_LINES = 200
const MAX_LINE_CHARS = 2000
/** How long the outputs may stay open after the end of the program, and a program after the end of its input. */
const LAST_WORDS_MS = 2000

/** The output has no answer. It may be that of a step in the program that has failed, so the call is repeated. */
export class InvalidAnswerError extends Error {}

/** A program whose processes answer calls, one at a time each. The constructor throws a UsageError if it cannot be found. */
export class Program {
  readonly #options: ProgramOptions
  readonly #started: Started
  readonly #slots: Budget
  readonly #all = new Set<ProgramProcess>()

  constructor(options: ProgramOptions) {
    const { command, lines, concurrency, variables, folder, isLogging = false } = options
    this.#options = options
    this.#started = { words: wordsIn(command), env: environment(variables), lines, folder, isLogging }
    this.#slots = new Budget(concurrency)
    // Also when a second signal ends this process: nobody else knows of the groups.
    process.once('exit', this.#killAll)
  }

  /** Resolves with what `read` finds in the output. A process whose output has an InvalidAnswerError is not called again. */
  async call<T>(asked: string, { signal, log, variables }: ProgramCall, read: (printed: Buffer) => T): Promise<T> {
    using _slot = await this.#slots.acquire(1, signal)
    signal.throwIfAborted()
    const { timeoutSeconds } = this.#options
    const one = [...this.#all].find(({ isFree }) => isFree) ?? this.#start(variables)
    const late = setTimeout(
      () => one.fail(`did not answer within ${timeoutSeconds} s, and was killed`),
      timeoutSeconds * 1000,
    )
    const gone = (): void => {
      log.warn({ because: (signal.reason as Error).message }, 'the program is killed')
      one.fail('was killed, because nobody waits for its answer')
    }
    signal.addEventListener('abort', gone, { once: true })
    try {
      return read(await one.answerTo(asked, log))
    } catch (error) {
      // The next line of the process might be the answer to this call.
      if (error instanceof InvalidAnswerError) one.kill()
      throw error
    } finally {
      clearTimeout(late)
      signal.removeEventListener('abort', gone)
    }
  }

  /** Lets processes that stay end, and kills those that do not. */
  async stop(): Promise<void> {
    for (const one of this.#all) one.endInput()
    await endedWithin(LAST_WORDS_MS, Promise.all([...this.#all].map(({ ended }) => ended)))
    this.#killAll()
    process.off('exit', this.#killAll)
  }

  #start(variables: Record<string, string> | undefined): ProgramProcess {
    const { env } = this.#started
    const one = new ProgramProcess({ ...this.#started, env: { ...env, ...variables } })
    this.#all.add(one)
    void one.ended.then(() => this.#all.delete(one))
    return one
  }

  readonly #killAll = (): void => {
    for (const one of this.#all) one.kill()
  }
}

/** Returns the words, the first of them as the path of a program. */
function wordsIn(command: string): [program: string, ...args: string[]] {
  const wrong = (why: string) => new UsageError(`the program ${JSON.stringify(command)}: ${why}`)
  if (/["'`$|&;<>*?()\\]/.test(command))
    throw wrong('no shell reads it, so quotes, variables and pipes belong into a script: give the path of a script')
  const [name = '', ...args] = command.trim().split(/\s+/)
  const folders = name.includes('/') ? [''] : (process.env['PATH'] ?? '').split(delimiter)
  const found = folders
    .map((folder) => join(folder, name))
    .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile())
  if (name === '' || found.length === 0) throw wrong(`there is no program ${name}: give its path, and its arguments`)
  const path = found.find(isExecutable)
  if (path === undefined) throw wrong(`${name} is not executable: chmod +x ${name}`)
  // Without a slash the program would be looked for in PATH.
  return [path.includes('/') ? path : `./${path}`, ...args]
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

function environment(variables: readonly string[]): Record<string, string> {
  const missing = variables.find((name) => process.env[name] === undefined)
  if (missing !== undefined) throw new UsageError(`--env names ${missing}, which is not set: set it, or leave it out`)
  const passed = Object.entries(process.env).filter(([name]) => PASSED.test(name) || variables.includes(name))
  return Object.fromEntries(passed) as Record<string, string>
}

interface Started {
  words: readonly [program: string, ...args: string[]]
  env: Record<string, string>
  /** It stays, and answers line by line. */
  lines: boolean
  folder: string | undefined
  isLogging: boolean
}

/** A process of the program with all that it starts: a process group, which ends as a whole. */
class ProgramProcess {
  readonly #program: Started
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>
  /** Resolves when nothing of the group can answer any more. */
  readonly ended: Promise<void>
  /** Whether it may be called. */
  #isReady = true
  #isOver = false
  #call: PromiseWithResolvers<Buffer> | undefined
  /** Of the last call: lines that come after its answer belong to it, too. */
  #log: RunLog | undefined
  #answer: Buffer[] = []
  #bytes = 0
  readonly #lastLine = { stdout: '', stderr: '' }
  #lines = 0

  constructor(program: Started) {
    const [file, ...args] = program.words
    this.#program = program
    const { env, folder: cwd } = program
    this.#child = spawn(file, args, { env, cwd, detached: true, stdio: ['pipe', 'pipe', 'pipe'] })
    this.ended = new Promise((resolve) => {
      this.#child.once('error', (error) => resolve(this.#over(unstarted(error))))
      // What cannot be started may have no pipes.
      if (this.#child.pid !== undefined) void this.#untilEnd().then((how) => resolve(this.#over(how)))
    })
  }

  /** It stays, and has answered each call. */
  get isFree(): boolean {
    return this.#isReady && this.#call === undefined
  }

  /** Resolves with all that the process prints, or with its next line. */
  answerTo(asked: string, log: RunLog): Promise<Buffer> {
    this.#log = log
    this.#lines = 0
    const call = Promise.withResolvers<Buffer>()
    this.#call = call
    if (this.#child.pid === undefined) return call.promise
    if (this.#program.lines) this.#child.stdin.write(`${asked}\n`)
    else this.#child.stdin.end(asked)
    return call.promise
  }

  /** Kills the group, and rejects the call with this reason. */
  fail(why: string, error: Error = this.#error(why)): void {
    this.kill()
    this.#call?.reject(error)
    this.#call = undefined
  }

  kill(): void {
    this.#isReady = false
    const { pid } = this.#child
    if (this.#isOver || pid === undefined) return
    try {
      process.kill(-pid, 'SIGKILL')
    } catch {
      // Nobody is left in the group.
    }
  }

  endInput(): void {
    this.#isReady = false
    this.#child.stdin?.end()
  }

  #error(why: string): Error {
    return new Error(`${this.#program.words.join(' ')} ${why}`)
  }

  /** Resolves with the way in which the process has ended; undefined: with exit code 0 and all of its output. */
  async #untilEnd(): Promise<string | undefined> {
    const { stdin, stdout, stderr } = this.#child
    // A program that does not read its input says by its end why.
    for (const stream of [stdin, stdout, stderr]) stream.on('error', () => {})
    if (this.#program.isLogging) stdout.setEncoding('utf8').on('data', (text: string) => this.#tell('stdout', text))
    else stdout.on('data', (chunk: Buffer) => this.#take(chunk))
    stderr.setEncoding('utf8').on('data', (text: string) => this.#tell('stderr', text))
    const printed = new Promise((resolve) => stdout.once('close', resolve))
    const told = new Promise((resolve) => stderr.once('close', resolve))
    const [code, signal] = (await once(this.#child, 'exit')) as [number | null, NodeJS.Signals | null]
    this.#isReady = false
    await endedWithin(LAST_WORDS_MS, printed)
    const isOpen = !stdout.readableEnded
    // What the program has left behind.
    this.kill()
    await endedWithin(LAST_WORDS_MS, told)
    for (const stream of [stdin, stdout, stderr]) stream.destroy()
    for (const from of ['stdout', 'stderr'] as const) if (this.#lastLine[from] !== '') this.#tell(from, '\n')
    if (signal !== null) return `was ended by ${signal}`
    if (code !== 0) return `ended with exit code ${code}`
    return isOpen
      ? 'has ended, but a process that it has started keeps its output open: wait for it, or redirect its output'
      : undefined
  }

  #over(how: string | undefined): void {
    this.#isReady = false
    this.#isOver = true
    const call = this.#call
    if (call === undefined) return
    this.#call = undefined
    if (how === undefined && !this.#program.lines) return call.resolve(Buffer.concat(this.#answer))
    const when = this.#bytes === 0 ? 'before it answered' : 'in the middle of its answer'
    call.reject(this.#error(this.#program.lines ? `${how ?? 'ended with exit code 0'} ${when}` : String(how)))
  }

  #take(chunk: Buffer): void {
    if (this.#call === undefined) return this.#refuseUnasked()
    const end = this.#program.lines ? chunk.indexOf('\n') : -1
    const part = end === -1 ? chunk : chunk.subarray(0, end)
    this.#bytes += part.length
    if (this.#bytes > MAX_ANSWER_BYTES) {
      const message = `it printed more than ${MAX_ANSWER_BYTES} bytes: return fewer or smaller objects`
      return this.fail('', new TerminalError(message, { reason: 'AnswerTooLarge' }))
    }
    this.#answer.push(part)
    if (end === -1) return
    this.#call.resolve(Buffer.concat(this.#answer))
    this.#call = undefined
    this.#answer = []
    this.#bytes = 0
    if (end + 1 < chunk.length) this.#refuseUnasked()
  }

  /** The process is out of step: a later line might be taken for the answer to another call. */
  #refuseUnasked(): void {
    if (!this.#isReady) return
    this.#log?.warn({}, 'the program printed more than one line for a call, and is killed: log to stderr')
    this.kill()
  }

  /** Logs each line, as far as the limits of a call allow. */
  #tell(from: 'stdout' | 'stderr', text: string): void {
    const lines = (this.#lastLine[from] + text).split('\n')
    this.#lastLine[from] = (lines.pop() ?? '').slice(0, MAX_LINE_CHARS)
    for (const line of lines) {
      this.#lines++
      if (this.#lines <= MAX_LINES) this.#log?.info({}, line.slice(0, MAX_LINE_CHARS))
      if (this.#lines === MAX_LINES + 1)
        this.#log?.warn({}, `the log has ${MAX_LINES} lines of each call, not the others`)
    }
  }
}

const unstarted = ({ message, code }: NodeJS.ErrnoException): string =>
  `cannot be started: ${message}${code === 'ENOENT' ? ': it, or the interpreter in its first line, is not there' : ''}`
