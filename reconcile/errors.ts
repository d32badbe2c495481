import type { Effect } from '#contracts'
import { messageOf } from '#queue/terms'
import type { Plan } from './plan.ts'
import type { Failure } from './status.ts'
import { called } from './world.ts'

/** A write is refused as things are. Shown on the primary object, and tried again later. */
export class RefusedError extends Error implements Failure {
  override readonly name = 'RefusedError'
  readonly reason: string
  constructor(message: string, options: ErrorOptions & { reason: string }) {
    super(message, options)
    this.reason = options.reason
  }
}

/** Nothing can be created any more where the object lives: it is about to go itself. */
export class NamespaceTerminatingError extends Error {
  override readonly name = 'NamespaceTerminatingError'
}

/** The primary object does not exist any more. */
export class GoneError extends Error {
  override readonly name = 'GoneError'
}

/** A function over HTTP gave no outcome, which may pass. */
export class FunctionError extends Error {
  override readonly name = 'FunctionError'
  /** When it wants to be asked again; left out: by backoff. */
  readonly afterSeconds: number | undefined
  /** Nothing answered, or a proxy said so: the function is starting or gone, whatever the object is. */
  readonly isAway: boolean
  constructor(message: string, options: ErrorOptions & { afterSeconds?: number | undefined; isAway: boolean }) {
    super(message, options)
    this.afterSeconds = options.afterSeconds
    this.isAway = options.isAway
  }
}

/** The external system could not be read. What follows depends on the class of the cause. */
export class ExternalError extends Error implements Failure {
  override readonly name: string = 'ExternalError'
  readonly reason: string
  constructor(cause: unknown, what = 'the external system cannot be read', reason = 'ExternalReadFailed') {
    super(`${what}: ${messageOf(cause)}`, { cause })
    this.reason = (cause as Partial<Failure> | undefined)?.reason ?? reason
  }
}

/** An effect failed. What follows depends on the class of the cause. */
export class EffectError extends ExternalError {
  override readonly name = 'EffectError'
  constructor(cause: unknown, { kind }: Effect) {
    super(cause, `effect ${kind}`, 'EffectFailed')
  }
}

/** The function did not come back in time. */
export class RunTimeoutError extends Error {
  override readonly name = 'RunTimeoutError'
}

/** It asks for another change after each of its changes: it would write without end. */
export class UnsettledError extends Error {
  override readonly name = 'UnsettledError'
  constructor(rounds: number, last: Plan) {
    const asked = askedFor(last)
    super(`the function asks for a change after each of its changes, ${rounds} times in a row; the last: ${asked}`)
  }
}

/** By name: values may be confidential. */
function askedFor({ stages, metadata, status }: Plan): string {
  const [first, ...others] = stages.flat()
  if (first === undefined && metadata !== undefined) return 'labels and annotations'
  if (first === undefined) return `status ${Object.keys(status?.status ?? {}).join(', ')}`
  return `${first.verb} ${called(first.object)}${others.length === 0 ? '' : ` and ${others.length} more`}`
}
