/** What a process of suspected calls is told, and tells. Imports nothing: that process shall start quickly. */
import { inspect } from 'node:util'
import type { FunctionInput } from '#contracts'

export interface Isolated {
  /** Of the call, in its process. */
  id: number
  /** Modules of functions; none: the built-in ones. */
  files: readonly string[]
  reconciler: string
  input: FunctionInput
}

/** What a function threw, as far as it can cross to another process. */
export interface Thrown {
  name: string
  message: string
  stack?: string | undefined
  reason?: string | undefined
  afterSeconds?: number | undefined
}

/** `stray`: of no call that could catch it; the process ends. */
export type FromFunction =
  | { kind: 'log'; id: number; level: 'debug' | 'info' | 'warn' | 'error'; fields: object; message: string }
  /** `leftBehind`: a timer, say, is still to come, or a connection is being closed. */
  | { kind: 'answer'; id: number; answer: unknown; leftBehind: boolean }
  /** Of a call that has answered: nothing of it is still to come. */
  | { kind: 'rest'; id: number }
  | { kind: 'error'; id: number; error: Thrown }
  | { kind: 'stray'; error: Thrown }

/** What a call leaves behind for longer is not waited for. */
export const COMES_TO_REST_MS = 100

export function thrownBy(thrown: unknown): Thrown {
  if (!(thrown instanceof Error))
    return { name: 'Error', message: typeof thrown === 'string' ? thrown : inspect(thrown) }
  const { name, message, stack, reason, afterSeconds }: Thrown = thrown
  return { name, message, stack, reason, afterSeconds }
}
