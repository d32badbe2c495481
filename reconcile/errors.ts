import type { Effect } from '#contracts'
import { messageOf } from '#queue/terms'
import type { Plan } from './plan.ts'
import type { Failure } from './status.ts'
import { called } from './world.ts'

/**
 * The API server refuses a write in the present state of the cluster. The primary object shows the refusal, and the
 * write is tried again later.
 */
export class RefusedError extends Error implements Failure {
  override readonly name = 'RefusedError'
  readonly reason: string
  constructor(message: string, options: ErrorOptions & { reason: string }) {
    super(message, options)
    this.reason = options.reason
  }
}

/** The object's namespace is being deleted, so the API server refuses new objects in it. */
export class NamespaceTerminatingError extends Error {
  override readonly name = 'NamespaceTerminatingError'
}

/** The primary object no longer exists. */
export class GoneError extends Error {
  override readonly name = 'GoneError'
}

/** A function over HTTP returned no outcome. The error may pass. */
export class FunctionError extends Error {
  override readonly name = 'FunctionError'
  /** The delay before the next request that the function asks for. Left out: the backoff applies. */
  readonly afterSeconds: number | undefined
  /**
   * No server of the function answered, or a proxy reported that: the function is starting or gone. The object is not
   * the cause.
   */
  readonly isAway: boolean
  constructor(message: string, options: ErrorOptions & { afterSeconds?: number; isAway: boolean }) {
    super(message, options)
    this.afterSeconds = options.afterSeconds
    this.isAway = options.isAway
  }
}

/** The external system could not be read. The class of the cause decides the consequence. */
export class ExternalError extends Error implements Failure {
  override readonly name: string = 'ExternalError'
  readonly reason: string
  constructor(cause: unknown, what = 'the external system cannot be read', reason = 'ExternalReadFailed') {
    super(`${what}: ${messageOf(cause)}`, { cause })
    this.reason = (cause as Partial<Failure> | undefined)?.reason ?? reason
  }
}

/** An effect failed. The class of the cause decides the consequence. */
export class EffectError extends ExternalError {
  override readonly name = 'EffectError'
  constructor(cause: unknown, { kind }: Effect) {
    super(cause, `effect ${kind}`, 'EffectFailed')
  }
}

/** The function did not return in time. */
export class RunTimeoutError extends Error {
  override readonly name = 'RunTimeoutError'
}

/** The function returns another change after each of its changes. The run would never stop writing. */
export class UnsettledError extends Error {
  override readonly name = 'UnsettledError'
  constructor(rounds: number, last: Plan) {
    const asked = askedFor(last)
    super(`the function asks for a change after each of its changes, ${rounds} times in a row; the last: ${asked}`)
  }
}

/** Names the first write without values, which may be confidential. */
function askedFor({ stages, metadata, status }: Plan): string {
  const [first, ...others] = stages.flat()
  if (first === undefined && metadata !== undefined) return 'labels and annotations'
  if (first === undefined) return `status ${Object.keys(status?.status ?? {}).join(', ')}`
  return `${first.verb} ${called(first.object)}${others.length === 0 ? '' : ` and ${others.length} more`}`
}
