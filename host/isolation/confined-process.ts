import { type ChildProcess, fork } from 'node:child_process'
import { ConflictError, type Invoke, RetryAfterError, TerminalError } from '#contracts'
import { COMES_TO_REST_MS, type FromFunction, type Isolated, type Thrown } from './isolation-messages.ts'

/** One of the calls has ended the process. */
export class ProcessEndedError extends Error {}

interface Pending {
  id: number
  resolve: (answer: unknown) => void
  reject: (error: Error) => void
  log: Parameters<Invoke>[1]['log']
}

/** A process that calls functions one after the other. */
export class ConfinedProcess {
  readonly #files: readonly string[]
  readonly #child: ChildProcess
  readonly #gone: Promise<void>
  #calls = 0
  #pending: Pending | undefined
  #end: Error | undefined
  #leftBehind = false
  /** Called when the last call has no pending timers or connections. */
  #rested: (() => void) | undefined
  #rest: NodeJS.Timeout | undefined

  constructor(files: readonly string[], heapMb: number) {
    this.#files = files
    this.#child = fork(new URL('./isolation-process.ts', import.meta.url), {
      serialization: 'advanced',
      execArgv: [`--max-old-space-size=${heapMb}`],
      stdio: ['ignore', 2, 2, 'ipc'],
    })
    this.#child.on('message', (message: FromFunction) => this.#hear(message))
    this.#gone = new Promise((resolve) => {
      this.#child.once('error', (error) => resolve(this.#ended(error)))
      this.#child.once('exit', (code, by) =>
        resolve(this.#ended(new ProcessEndedError(`the function ended its process: ${by ?? `exit code ${code}`}`))),
      )
    })
  }

  /**
   * Resolves when the last call has no pending timers or connections, when the time for that is over, or when the
   * process has ended.
   */
  async settles(): Promise<void> {
    if (!this.#leftBehind) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#rested = resolve
    const timer = setTimeout(resolve, COMES_TO_REST_MS)
    await Promise.race([promise, this.#gone])
    clearTimeout(timer)
  }

  /** Whether the process runs, and its last call has no pending timers or connections. */
  get isReusable(): boolean {
    return this.#end === undefined && !this.#leftBehind
  }

  /**
   * Rejects with the error of the function, or with a ProcessEndedError. After an abort the function may still be
   * running in the process.
   */
  async call(reconciler: string, ...[input, { signal, log }]: Parameters<Invoke>): Promise<unknown> {
    signal.throwIfAborted()
    this.#wake()
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const id = ++this.#calls
    this.#pending = { id, resolve, reject, log }
    if (this.#end) reject(this.#end)
    const abort = () => reject(signal.reason as Error)
    signal.addEventListener('abort', abort, { once: true })
    // A failed send needs no handler here: the end of the process is reported separately.
    this.#child.send({ id, files: this.#files, reconciler, input } satisfies Isolated, () => undefined)
    try {
      return await promise
    } finally {
      this.#pending = undefined
      signal.removeEventListener('abort', abort)
    }
  }

  /** Keeps the process for the next call, for this many milliseconds. It does not keep its parent alive. */
  rest(ms: number): void {
    this.#child.unref()
    this.#child.channel?.unref()
    this.#rest = setTimeout(() => void this.end(), ms).unref()
  }

  /** Resolves when the process is gone. */
  end(): Promise<void> {
    clearTimeout(this.#rest)
    this.#child.kill('SIGKILL')
    return this.#gone
  }

  #wake(): void {
    clearTimeout(this.#rest)
    this.#child.ref()
    this.#child.channel?.ref()
  }

  #hear(message: FromFunction): void {
    if (message.kind === 'stray')
      return this.#ended(new ProcessEndedError(message.error.message, { cause: message.error }))
    if (message.kind === 'rest') return this.#rests(message.id)
    const pending = this.#pending
    if (pending?.id !== message.id) return
    if (message.kind === 'log') return pending.log[message.level](message.fields, message.message)
    if (message.kind === 'error') return pending.reject(revive(message.error))
    this.#leftBehind = message.leftBehind
    pending.resolve(message.answer)
  }

  #rests(id: number): void {
    if (id !== this.#calls) return
    this.#leftBehind = false
    this.#rested?.()
  }

  /** Keeps the first error only. */
  #ended(error: Error): void {
    this.#end ??= error
    this.#pending?.reject(this.#end)
  }
}

function revive({ name, message, stack, reason, afterSeconds = 0 }: Thrown): Error {
  const options = reason === undefined ? {} : { reason }
  const error =
    name === 'TerminalError'
      ? new TerminalError(message, options)
      : name === 'RetryAfterError'
        ? new RetryAfterError(message, { ...options, afterSeconds })
        : name === 'ConflictError'
          ? new ConflictError(message)
          : new Error(message)
  if (stack !== undefined) error.stack = stack
  return error
}
