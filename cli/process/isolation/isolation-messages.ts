/**
 * Messages between Fairlead and a process of suspected calls. This module has few imports, so that the process starts
 * quickly.
 */
import { inspect } from 'node:util'
import { type FunctionInput, placeOf, type RunContext } from '#contracts'

export interface Isolated {
  /** The number of the call, unique in its process. */
  id: number
  /** The modules of the functions. A function that is in none of them is a built-in one. */
  files: readonly string[]
  reconciler: string
  input: FunctionInput
  config: RunContext['config']
  with: RunContext['with']
}

/** An error of a function, reduced to the parts that can be sent to another process. */
export interface Thrown {
  name: string
  message: string
  stack?: string
  reason?: string
  afterSeconds?: number
  /** Where the function has thrown it. */
  place?: string | undefined
}

/** Asks for the place of the code that blocks the thread of calls. Afterwards the process is of no use. */
export interface AskedPlace {
  kind: 'where'
}

/** `stray`: an error outside of every call; the process ends. */
export type FromFunction =
  | { kind: 'log'; id: number; level: 'debug' | 'info' | 'warn' | 'error'; fields: object; message: string }
  /** `leftBehind`: the call has pending timers or connections. */
  | { kind: 'answer'; id: number; answer: unknown; leftBehind: boolean }
  /** The call that was answered has no pending timers or connections left. */
  | { kind: 'rest'; id: number }
  | { kind: 'error'; id: number; error: Thrown }
  /** The answer to AskedPlace. Undefined: no code of the author blocks the thread. */
  | { kind: 'blocked'; place: string | undefined }
  | { kind: 'stray'; error: Thrown }

/** The time after which pending timers and connections of a call are no longer awaited. */
export const COMES_TO_REST_MS = 100

export function thrownBy(thrown: unknown): Thrown {
  if (!(thrown instanceof Error))
    return { name: 'Error', message: typeof thrown === 'string' ? thrown : inspect(thrown) }
  const { name, message, stack, reason, afterSeconds }: Thrown = thrown
  return { name, message, stack, reason, afterSeconds, place: placeOf(thrown) }
}
