import { type CloudEvent, fromHttp, type ReceivedHttp } from '#cloudevents'
import { type FunctionInput, type KubeObject, type PerformInput, type RunInput, TerminalError } from '#contracts'
import type { Reconciler } from './definition.ts'

/** The URL of a Reconciler leads to the server of another function. */
export class OtherFunctionError extends Error {}

/** The request types of a dispatcher: a decision, the state of the external system, or an effect. */
const ASKED_TYPE = /^dev\.fairlead\.(reconcile|read|perform)$/

/** The event type of an object, by Fairlead or by Knative's ApiServerSource. */
const OBJECT_TYPE = /^(?:dev\.fairlead\.resource|dev\.knative\.apiserver\.resource)\.(\w+)$/

/** Returns the input of the function from a request: the full input of a dispatcher, or a single object. */
export function inputIn(request: ReceivedHttp, reconciler: Reconciler, now: Date): FunctionInput {
  const event = fromHttp(request)
  const [, ask] = ASKED_TYPE.exec(event.type) ?? []
  if (ask !== undefined) {
    demandOwnReconciler(event, reconciler)
    return askedInput(event, ask)
  }
  const [, verb] = OBJECT_TYPE.exec(event.type) ?? []
  if (verb === undefined)
    throw unsupported(
      `an event of type ${event.type} is nothing to reconcile: send dev.fairlead.reconcile, or an object's`,
    )
  return aloneInput(event, verb, reconciler, now)
}

/** The name of the reconciler is the last segment of the source in a dispatcher's request. */
const RECONCILER_SOURCE = /\/reconcilers\/([^/]+)$/

function demandOwnReconciler({ source }: CloudEvent, { name }: Reconciler): void {
  const [, asked = name] = RECONCILER_SOURCE.exec(source) ?? []
  if (asked !== name)
    throw new OtherFunctionError(`this is ${name}, not ${asked}: give the URL of ${asked} in spec.invoke.http.url`)
}

function askedInput({ data }: CloudEvent, ask: string): FunctionInput {
  const { ask: _, effect, ...input } = (data ?? {}) as Partial<PerformInput>
  const run = runInput(input)
  if (ask === 'reconcile') return run
  if (ask === 'read') return { ...run, ask }
  if (typeof effect?.kind !== 'string') throw unsupported('an effect has a `kind`')
  return { ...run, ask: 'perform', effect }
}

function runInput({ object, owned, related, attempt, now, ...rest }: Partial<RunInput>): Omit<RunInput, 'ask'> {
  if (object === undefined || typeof now !== 'string' || Number.isNaN(Date.parse(now)))
    throw unsupported('the data of a run has `object` (null when it is gone) and `now`')
  return { finalizing: false, ...rest, object, owned: owned ?? {}, related: related ?? {}, attempt: attempt ?? 0, now }
}

/** The input for a single object, for trials behind a trigger: it contains no owned objects. */
function aloneInput({ data, dataref }: CloudEvent, verb: string, { for: kind }: Reconciler, now: Date): RunInput {
  const object = data as KubeObject | undefined
  if (dataref !== undefined || typeof object?.metadata?.name !== 'string')
    throw unsupported('the event has only a reference to its object, and a function cannot look it up')
  if (object.kind !== kind.kind) throw unsupported(`the function is for ${kind.kind}, not for ${object.kind}`)
  const isGone = verb === 'deleted' || verb === 'delete'
  return {
    object: isGone ? null : object,
    owned: {},
    related: {},
    attempt: 0,
    now: now.toISOString(),
    finalizing: false,
  }
}

const unsupported = (message: string): TerminalError => new TerminalError(message, { reason: 'UnsupportedEvent' })
