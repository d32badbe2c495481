import { Worker } from 'node:worker_threads'
import { ConflictError, type Invoke, type Outcome, RetryAfterError, type RunInput, TerminalError } from '#contracts'

export interface Isolated {
  /** Modules of functions; none: the built-in ones. */
  files: readonly string[]
  reconciler: string
  input: RunInput
}

/** What a function threw, as far as it can cross to another thread. */
export interface Thrown {
  name: string
  message: string
  stack?: string | undefined
  reason?: string | undefined
  afterSeconds?: number | undefined
}

export type FromThread =
  | { kind: 'log'; level: 'debug' | 'info' | 'warn' | 'error'; fields: object; message: string }
  | { kind: 'outcome'; outcome: Outcome }
  | { kind: 'error'; error: Thrown }

/** Each has a JavaScript heap of its own. */
const MAX_THREADS = 4

/**
 * The same functions, each call in a thread of its own: an endless loop, a full heap or process.exit() end the thread
 * and nothing else. Costs some 100 ms and a heap per call.
 */
export function isolation(files: readonly string[]): (reconciler: string) => Invoke {
  const turns = new Turns(MAX_THREADS)
  return (reconciler) => async (input, context) => {
    await using _turn = await turns.take()
    context.signal.throwIfAborted()
    return callInThread({ files, reconciler, input }, context)
  }
}

async function callInThread(call: Isolated, { signal, log }: Parameters<Invoke>[1]): Promise<Outcome> {
  const thread = new Worker(new URL('./isolation-thread.ts', import.meta.url), { workerData: call })
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>()
  const abort = () => reject(signal.reason as Error)
  signal.addEventListener('abort', abort, { once: true })
  thread.on('message', (message: FromThread) => {
    if (message.kind === 'log') return log[message.level](message.fields, message.message)
    return message.kind === 'outcome' ? resolve(message.outcome) : reject(revive(message.error))
  })
  thread.on('error', reject)
  thread.on('exit', (code) => reject(new Error(`the function ended its thread, with exit code ${code}`)))
  try {
    return await promise
  } finally {
    signal.removeEventListener('abort', abort)
    await thread.terminate()
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

class Turns {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(free: number) {
    this.#free = free
  }

  async take(): Promise<AsyncDisposable> {
    if (this.#free === 0) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    else this.#free--
    return {
      [Symbol.asyncDispose]: async () => {
        const next = this.#waiting.shift()
        if (next) next()
        else this.#free++
      },
    }
  }
}
