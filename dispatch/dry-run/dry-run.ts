import { randomBytes } from 'node:crypto'
import type { AppliedObject, Invoke, KubeObject, Outcome, RunInput, RunLog, Scrub } from '#contracts'
import { keyOf } from '#events'
import type { KubeClient } from '#kube'
import { unlessAborted } from '#primitives'
import { dated, type Finish, type Lease } from '#queue'
import {
  isConfidential,
  MAX_STATE_BYTES,
  NoOpWrites,
  namesOf,
  type Reconciled,
  reconciled,
  scrubber,
  toldActs,
  WITHHELD,
  withoutContents,
} from '#reconcile'
import type { ReconcilerSpec } from '#spec'
import { InFlight } from '../apply/write-through.ts'
import { Gate } from '../gate.ts'
import { Adoptions, createObjectCache, References } from '../observe/references.ts'
import { StateBudget } from '../observe/state-budget.ts'
import { configOf, type ServedReconciler, seedsFrom } from '../run/dependencies.ts'
import { FunctionCalls } from '../run/function-calls.ts'
import { Reconciliation } from '../run/reconciliation.ts'
import { apiView } from './api-view.ts'
import { type DryRunStep, dryRunDeps } from './dry-run-client.ts'

export interface DryRunOptions {
  kube: KubeClient
  name: string
  spec: ReconcilerSpec
  invoke: Invoke
  object: { namespace: string | undefined; name: string }
  log: RunLog
  now: Date
  signal: AbortSignal
  /** The kinds whose contents are confidential. Left out: Secrets. */
  isReferenceOnly?: Reconciled['isReferenceOnly']
  /** What the run observes. Left out: the API server is read for this run alone. */
  view?: ReturnType<typeof apiView>
}

export interface DryRunResult {
  /** The last outcome of the function, without confidential contents. Undefined: it was not called, or threw. */
  outcome: Outcome | undefined
  would: DryRunStep[]
  finish: Finish<Date>
}

/** Runs one object on the state of the API server. It writes nothing, and needs neither the queue nor EVENTS. */
export async function dryRun(options: DryRunOptions): Promise<DryRunResult> {
  const { kube, name, spec, invoke, object, log, now, signal, isReferenceOnly } = options
  const { view = apiView(kube, signal, {}, isReferenceOnly) } = options
  const would: DryRunStep[] = []
  let outcome: Outcome | undefined
  const gate = new Gate(4)
  const of = reconciled(name, { ...spec, dryRun: true }, view.isReferenceOnly)
  const deps = dryRunDeps(
    {
      kube,
      events: { ...view, put: () => Promise.reject(new TypeError('a dry run stores nothing')) },
      gate,
      references: new References({ kube, events: view, gate, cache: createObjectCache(), account: '' }),
      adoptions: new Adoptions({ kube, gate }),
      state: new StateBudget(MAX_STATE_BYTES),
      noOps: new NoOpWrites(),
      recorder: { record: () => undefined },
      calls: new FunctionCalls(),
      now: () => now,
      random: Math.random,
      seed: seedsFrom(randomBytes),
      inFlight: new InFlight(),
      sampled: false,
      observe: () => undefined,
      deadLetter: undefined,
    },
    (step) => would.push(step),
  )
  const listening: Invoke = async (input, context) => {
    // A call that ignores its signal is not waited for, because there is no key to hold.
    const answer = () => unlessAborted(invoke(input, context), context.signal)
    if (input.ask !== undefined) return answer()
    outcome = undefined
    const returned = (await answer()) as Outcome
    outcome = shownOutcome(returned, input, of)
    return returned
  }
  const served: ServedReconciler = {
    ...of,
    invoke: listening,
    reconcilerVersion: undefined,
    config: configOf(name, spec, { kube, gate, now: () => now }),
  }
  const finish = await new Reconciliation(
    deps,
    served,
    leaseOf(name, keyOf(object.namespace, object.name), now, signal),
    log,
  ).toEnd()
  return { outcome, would, finish: dated(finish, now) }
}

/** Returns a lease that is never lost, because the run writes nothing. */
const leaseOf = (reconciler: string, key: string, now: Date, signal: AbortSignal): Lease => ({
  reconciler,
  key,
  lane: 'high',
  owner: 'dry-run',
  attempt: 0,
  cutShort: false,
  suspect: false,
  fired: false,
  causes: [],
  enqueuedAt: now,
  until: now,
  signal,
  hold: () => Number.POSITIVE_INFINITY,
  stale: new AbortController().signal,
  progressed: () => undefined,
  beginPass: async () => 'announced here' as const,
})

/**
 * Returns the outcome without confidential contents in `apply` and `patch`, and without the values of these and of the input's
 * confidential objects in acts and the effect. `of` left out: Secrets are confidential.
 */
export function shownOutcome(
  { apply, patch, act, effect, ...others }: Outcome,
  { object: primary, owned, related }: RunInput,
  of?: Reconciled,
): Outcome {
  const isHidden = (object: KubeObject) => (of === undefined ? isSecret(object) : isConfidential(of, object))
  const given = [owned, related].flatMap((kinds) => Object.values(kinds).flat())
  const names = () => (of === undefined ? [] : namesOf(of, [...(primary ? [primary] : []), ...given]))
  const scrub = scrubber([...given, ...(apply ?? []), ...(patch ?? [])].filter(isHidden), names)
  const shown = (object: AppliedObject): AppliedObject =>
    isSecret(object) ? withoutValues(object) : isHidden(object) ? withoutContents(object) : object
  return {
    ...(apply && { apply: apply.map(shown) }),
    ...(patch && { patch: patch.map(shown) }),
    ...(act && { act: toldActs(act).map(({ on, ...one }) => ({ on, ...scrubbedIn(one, scrub) })) }),
    ...others,
    ...(effect && { effect: scrubbedIn(effect, scrub) }),
  }
}

const isSecret = ({ apiVersion, kind }: KubeObject): boolean => apiVersion === 'v1' && kind === 'Secret'

const scrubbedIn = <T>(value: T, scrub: Scrub): T =>
  JSON.parse(JSON.stringify(value), (_, one) => (typeof one === 'string' ? scrub(one) : one)) as T

const withoutValues = ({ data, stringData, ...others }: AppliedObject): AppliedObject => ({
  ...others,
  ...(data !== undefined && { data: keysOf(data) }),
  ...(stringData !== undefined && { stringData: keysOf(stringData) }),
})

const keysOf = (values: unknown): Record<string, string> =>
  Object.fromEntries(Object.keys(Object(values)).map((key) => [key, WITHHELD]))
