import { type ChildProcess, fork } from 'node:child_process'
import { ConflictError, type Invoke, type Outcome, RetryAfterError, TerminalError } from '#contracts'
import type { FromFunction, Isolated, Thrown } from './isolation-messages.ts'

/** The process is gone, by what one of its calls has done. */
export class ProcessEndedError extends Error {}

/** A process in which functions are called, one call after the other. */
export class ConfinedProcess {
  readonly #files: readonly string[]
  readonly #child: ChildProcess
  readonly #ended: Promise<never>
  #calls = 0
  #rest: NodeJS.Timeout | undefined

  constructor(files: readonly string[], heapMb: number) {
    this.#files = files
    this.#child = fork(new URL('./isolation-process.ts', import.meta.url), {
      serialization: 'advanced',
      execArgv: [`--max-old-space-size=${heapMb}`],
      stdio: ['ignore', 2, 2, 'ipc'],
    })
    this.#ended = this.#end()
    this.#ended.catch(() => undefined)
  }

  /** Rejects with what the function threw, or ProcessEndedError. Ended by the signal, the process may still be at it. */
  async call(reconciler: string, ...[input, { signal, log }]: Parameters<Invoke>): Promise<Outcome> {
    const id = ++this.#calls
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>()
    const abort = () => reject(signal.reason as Error)
    const hear = (message: FromFunction) => {
      if (message.kind === 'stray' || message.id !== id) return
      if (message.kind === 'log') return log[message.level](message.fields, message.message)
      return message.kind === 'outcome' ? resolve(message.outcome) : reject(revive(message.error))
    }
    this.#wake()
    this.#child.on('message', hear)
    signal.addEventListener('abort', abort, { once: true })
    // What cannot be sent has nobody to go to: that it has ended is heard of by itself.
    this.#child.send({ id, files: this.#files, reconciler, input } satisfies Isolated, () => undefined)
    try {
      return await Promise.race([promise, this.#ended])
    } finally {
      signal.removeEventListener('abort', abort)
      this.#child.off('message', hear)
    }
  }

  /** Waits for the next call without keeping this process; `gone` is called when it has ended. */
  rest(ms: number, gone: () => void): void {
    this.#child.unref()
    this.#child.channel?.unref()
    this.#rest = setTimeout(() => this.end(), ms).unref()
    this.#ended.catch(gone)
  }

  end(): void {
    clearTimeout(this.#rest)
    this.#child.kill('SIGKILL')
  }

  #wake(): void {
    clearTimeout(this.#rest)
    this.#child.ref()
    this.#child.channel?.ref()
  }

  #end(): Promise<never> {
    return new Promise((_, reject) => {
      this.#child.on('message', (message: FromFunction) => {
        if (message.kind === 'stray') reject(new ProcessEndedError(message.error.message, { cause: message.error }))
      })
      this.#child.on('error', reject)
      this.#child.on('exit', (code, by) =>
        reject(new ProcessEndedError(`the function ended its process: ${by ?? `exit code ${code}`}`)),
      )
    })
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
