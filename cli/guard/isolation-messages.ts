/** What a call in a process of its own is told, and tells. Imports nothing: that process is started for each call. */
import { inspect } from 'node:util'
import type { Outcome, RunInput } from '#contracts'

export interface Isolated {
  /** Modules of functions; none: the built-in ones. */
  files: readonly string[]
  reconciler: string
  input: RunInput
}

/** What a function threw, as far as it can cross to another process. */
export interface Thrown {
  name: string
  message: string
  stack?: string | undefined
  reason?: string | undefined
  afterSeconds?: number | undefined
}

export type FromFunction =
  | { kind: 'log'; level: 'debug' | 'info' | 'warn' | 'error'; fields: object; message: string }
  | { kind: 'outcome'; outcome: Outcome }
  | { kind: 'error'; error: Thrown }

export function thrownBy(thrown: unknown): Thrown {
  if (!(thrown instanceof Error))
    return { name: 'Error', message: typeof thrown === 'string' ? thrown : inspect(thrown) }
  const { name, message, stack, reason, afterSeconds }: Thrown = thrown
  return { name, message, stack, reason, afterSeconds }
}
