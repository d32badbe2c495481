import { fork } from 'node:child_process'
import { ConflictError, type Invoke, type Outcome, RetryAfterError, TerminalError } from '#contracts'
import type { FromFunction, Isolated, Thrown } from './isolation-messages.ts'

/** Where more are suspected at once, something else ended the process they ran in: the others run as ever. */
const MAX_PROCESSES = 4
/** Of each of them. */
const HEAP_MB = 512

/**
 * The same functions, each call in a process of its own: an endless loop, a full heap or process.exit() end that and
 * nothing else. Costs half a second and a heap per call.
 */
export function isolation(
  files: readonly string[],
  heapMb = HEAP_MB,
): (reconciler: string, otherwise: Invoke) => Invoke {
  let busy = 0
  return (reconciler, otherwise) => async (input, context) => {
    if (busy >= MAX_PROCESSES) return otherwise(input, context)
    busy++
    try {
      return await callInProcess({ files, reconciler, input }, heapMb, context)
    } finally {
      busy--
    }
  }
}

async function callInProcess(call: Isolated, heapMb: number, { signal, log }: Parameters<Invoke>[1]): Promise<Outcome> {
  const child = fork(new URL('./isolation-process.ts', import.meta.url), {
    serialization: 'advanced',
    execArgv: [`--max-old-space-size=${heapMb}`],
    stdio: ['ignore', 2, 2, 'ipc'],
  })
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>()
  const abort = () => reject(signal.reason as Error)
  signal.addEventListener('abort', abort, { once: true })
  child.on('message', (message: FromFunction) => {
    if (message.kind === 'log') return log[message.level](message.fields, message.message)
    return message.kind === 'outcome' ? resolve(message.outcome) : reject(revive(message.error))
  })
  child.on('error', reject)
  child.on('exit', (code, by) => reject(new Error(`the function ended its process: ${by ?? `exit code ${code}`}`)))
  child.send(call)
  try {
    return await promise
  } finally {
    signal.removeEventListener('abort', abort)
    child.kill('SIGKILL')
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
