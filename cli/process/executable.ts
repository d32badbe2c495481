import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { z } from 'zod'
import { type FunctionInput, type Invoke, RetryAfterError, type RunLog, TerminalError } from '#contracts'
import { Budget, endedWithin } from '#primitives'
import { parseOutcome } from '#reconcile'
import { UsageError } from './exit.ts'

/** A program that decides instead of a function of this process. docs/adapters/executables.md has its protocol. */
export interface ExecutableOptions {
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
}

export interface Executable {
  invoke: Invoke
  /** Lets processes that stay end, and kills those that do not. */
  stop: () => Promise<void>
}

/** Where the program runs, and in which language. All other variables may be secrets, such as those of a cluster. */
const PASSED = /^(?:PATH|HOME|USER|LANG|LC_[A-Z]+|TZ|TMPDIR)$/
/** As for answers over HTTP. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024
/** The log lines of a call. */
const MAX_LINES = 200
const MAX_LINE_CHARS = 2000
const MAX_MESSAGE_CHARS = 1000
/** How long the outputs may stay open after the end of the program, and a program after the end of its input. */
const LAST_WORDS_MS = 2000

/** Throws a UsageError if the program cannot be found. */
export function executable(options: ExecutableOptions): Executable {
  const program = { words: wordsIn(options.command), env: environment(options.variables), lines: options.lines }
  const slots = new Budget(options.concurrency)
  const all = new Set<ProgramProcess>()
  let calls = 0

  function start(): ProgramProcess {
    const one = new ProgramProcess(program)
    all.add(one)
    void one.ended.then(() => all.delete(one))
    return one
  }
  const killAll = (): void => {
    for (const one of all) one.kill()
  }
  // Also when a second signal ends this process: nobody else knows of the groups.
  process.once('exit', killAll)

  const invoke: Invoke = async (input, { signal, log }) => {
    if (input.object === null) return {}
    using _slot = await slots.acquire(1, signal)
    signal.throwIfAborted()
    const one = [...all].find(({ isFree }) => isFree) ?? start()
    const late = setTimeout(
      () => one.fail(`did not answer within ${options.timeoutSeconds} s, and was killed`),
      options.timeoutSeconds * 1000,
    )
    const gone = (): void => {
      log.warn({ because: (signal.reason as Error).message }, 'the program is killed')
      one.fail('was killed, because nobody waits for its answer')
    }
    signal.addEventListener('abort', gone, { once: true })
    try {
      const id = options.lines ? ++calls : undefined
      const text = await one.answerTo(JSON.stringify({ id, ...input }), log)
      return returnedIn(answerIn(text, id), input.ask)
    } catch (error) {
      // The next line of the process might be the answer to this call.
      if (error instanceof InvalidAnswerError) one.kill()
      throw error
    } finally {
      clearTimeout(late)
      signal.removeEventListener('abort', gone)
    }
  }

  async function stop(): Promise<void> {
    process.off('exit', killAll)
    for (const one of all) one.endInput()
    await endedWithin(LAST_WORDS_MS, Promise.all([...all].map(({ ended }) => ended)))
    killAll()
  }
  return { invoke, stop }
}

/** Returns the words, the first of them as the path of a program. */
function wordsIn(command: string): [program: string, ...args: string[]] {
  const wrong = (why: string) => new UsageError(`--exec is ${JSON.stringify(command)}: ${why}`)
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

interface Program {
  words: readonly [program: string, ...args: string[]]
  env: Record<string, string>
  /** It stays, and answers line by line. */
  lines: boolean
}

/** A process of the program with all that it starts: a process group, which ends as a whole. */
class ProgramProcess {
  readonly #program: Program
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>
  /** Resolves when nothing of the group can answer any more. */
  readonly ended: Promise<void>
  /** Whether it may be called. */
  #isReady = true
  #isOver = false
  #call: PromiseWithResolvers<string> | undefined
  /** Of the last call: lines that come after its answer belong to it, too. */
  #log: RunLog | undefined
  #answer: Buffer[] = []
  #bytes = 0
  #line = ''
  #lines = 0

  constructor(program: Program) {
    const [file, ...args] = program.words
    this.#program = program
    this.#child = spawn(file, args, { env: program.env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] })
    this.ended = new Promise((resolve) => {
      this.#child.once('error', ({ message }) => resolve(this.#over(`cannot be started: ${message}`)))
      // What cannot be started may have no pipes.
      if (this.#child.pid !== undefined) void this.#untilEnd().then((how) => resolve(this.#over(how)))
    })
  }

  /** It stays, and has answered each call. */
  get isFree(): boolean {
    return this.#isReady && this.#call === undefined
  }

  /** Resolves with all that the process prints, or with its next line. */
  answerTo(asked: string, log: RunLog): Promise<string> {
    this.#log = log
    this.#lines = 0
    const call = Promise.withResolvers<string>()
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
    stdout.on('data', (chunk: Buffer) => this.#take(chunk))
    stderr.setEncoding('utf8').on('data', (text: string) => this.#tell(text))
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
    if (this.#line !== '') this.#tell('\n')
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
    if (how === undefined && !this.#program.lines) return call.resolve(Buffer.concat(this.#answer).toString())
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
    this.#call.resolve(Buffer.concat(this.#answer).toString())
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
  #tell(text: string): void {
    const lines = (this.#line + text).split('\n')
    this.#line = (lines.pop() ?? '').slice(0, MAX_LINE_CHARS)
    for (const line of lines) {
      this.#lines++
      if (this.#lines <= MAX_LINES) this.#log?.info({}, line.slice(0, MAX_LINE_CHARS))
      if (this.#lines === MAX_LINES + 1)
        this.#log?.warn({}, `the log has ${MAX_LINES} lines of each call, not the others`)
    }
  }
}

/** The output has no answer. It may be that of a step in the program that has failed, so the call is repeated. */
class InvalidAnswerError extends Error {}

const failure = z.strictObject({
  message: z.string(),
  reason: z.string().min(1).optional(),
  terminal: z.boolean().default(false),
  retryAfterSeconds: z.number().min(0).optional(),
})

/** Returns the JSON object of an output. Its text may have Secrets of the input, so that errors do not quote it. */
function answerIn(text: string, id: number | undefined): Record<string, unknown> {
  if (text.trim() === '') throw new InvalidAnswerError('the program printed nothing: print {} if nothing is to be done')
  let answer: unknown
  try {
    answer = JSON.parse(text)
  } catch {
    const expected =
      id === undefined ? 'one JSON object, and logs to stderr' : 'one line with a JSON object, and logs to stderr'
    throw new InvalidAnswerError(`the program printed ${text.length} characters that are no JSON: print ${expected}`)
  }
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer))
    throw new InvalidAnswerError('the program printed JSON that is no object: print {} if nothing is to be done')
  const { id: answered, ...fields } = answer as Record<string, unknown>
  if (id !== undefined && answered !== id)
    throw new InvalidAnswerError('the program answered another call: give the answer the "id" of its call')
  return fields
}

/** Returns the outcome, or the contents of the answer to `ask`. Throws the error that the program reports. */
function returnedIn({ error, ...answer }: Record<string, unknown>, ask: FunctionInput['ask']): unknown {
  if (error !== undefined) throw reported(error)
  if (ask === undefined) return parseOutcome(answer)
  const field = ask === 'read' ? 'external' : 'result'
  if (ask === 'read' && answer[field] === undefined)
    throw new InvalidAnswerError('the program answered "read" without "external": print { "external": … }')
  return answer[field] ?? null
}

function reported(error: unknown): Error {
  const { success, data, error: wrong } = failure.safeParse(error)
  if (!success) {
    const issues = wrong.issues.map(({ path, message }) => `${['error', ...path].join('.')}: ${message}`)
    return new InvalidAnswerError(`the program reported an error that is not valid: ${issues.join('; ')}`)
  }
  const { reason, terminal, retryAfterSeconds: afterSeconds } = data
  const message = data.message.slice(0, MAX_MESSAGE_CHARS)
  if (terminal) return new TerminalError(message, { ...(reason && { reason }) })
  if (afterSeconds !== undefined) return new RetryAfterError(message, { afterSeconds, ...(reason && { reason }) })
  return new Error(message)
}
