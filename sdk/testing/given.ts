import type { z } from 'zod'
import {
  type Act,
  apiVersionOf,
  type ClusterInfo,
  type Invoke,
  isRecord,
  type KeptStatus,
  type KubeObject,
  kindName,
  type Outcome,
  type Performed,
  type Refusal,
  type ResourceRef,
  type RunContext,
  type RunInput,
} from '#contracts'
import {
  deepFreeze,
  isFinalizing,
  markedBy,
  ownershipMark,
  RECONCILER_ANNOTATION,
  type Reconciled,
  type World,
} from '#reconcile'
import { type Kind, manifest, type ObservedBy, type Reconciler, type Resource, toInvoke } from '#sdk'
import { finalizerOf, identityOf, isOwnedBy, patchRelations, type ReconcilerSpec, relation, retainerOf } from '#spec'
import { changesBetween, LawBroken } from './broken.ts'
import { asStored } from './memory.ts'

/**
 * The input of one decision. `now` defaults to 2030-01-01T00:00:00Z, `attempt` to 0.
 *
 * @example
 * import { type Given, outcomeOf } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const given: Given = { object, now: '2030-01-01T12:00:00Z' }
 * const { status } = await outcomeOf(website, given)
 * status // => { ready: 0 }
 */
export interface Given {
  /** The reconciled object; null if it does not exist. Without a `creationTimestamp`, it is created at `now`. */
  object: KubeObject | null
  /** Other objects in the cluster. A run receives the owned and related ones, as from a dispatcher. */
  others?: readonly KubeObject[]
  /** @default 2030-01-01T00:00:00Z */
  now?: Date | string
  /**
   * Failed runs since the last success.
   *
   * @default 0
   */
  attempt?: number
  /** Writes that were refused earlier in the run: `{ kind: RoleBinding, name: 'admins', reason: 'Forbidden' }`. */
  refused?: readonly (Pick<Refusal, 'name' | 'namespace' | 'reason'> & { kind: Kind<unknown>; message?: string })[]
  /** The value that `external.read` of the reconciler has returned. */
  external?: unknown
  /** The earlier effect of the run. */
  performed?: Performed
  /**
   * The cluster that the run is for.
   *
   * @default one without a name
   */
  cluster?: ClusterInfo
  /**
   * Whether `finalize` is called. An object with a `deletionTimestamp` needs the finalizer: without it, no run calls the
   * function. A reconciler without `finalize` leaves it alone.
   *
   * @default true if the object is being deleted and has the reconciler's finalizer
   */
  finalizing?: boolean
}

const DEFAULT_NOW = '2030-01-01T00:00:00.000Z'
/** Throws a RangeError for a text that is not a time. */
export function timeOf(now: Date | string = DEFAULT_NOW): Date {
  const time = new Date(now)
  if (!Number.isNaN(time.getTime())) return time
  throw new RangeError(`now is ${JSON.stringify(now)}: give a Date, or a time such as "2030-01-01T00:00:00Z"`)
}

const quiet = { debug() {}, info() {}, warn() {}, error() {} }

/**
 * Returns the outcome of the function for these objects at this time, as plain data. Rejects with the error that the
 * function throws, and with a RangeError for a `now` that is not a time, or for an object that `finalize` cannot get.
 *
 * @example
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const { status } = await outcomeOf(website, { object })
 * status // => { ready: 0 }
 */
export async function outcomeOf(reconciler: Reconciler, given: Given): Promise<Outcome> {
  return invokeOf(reconciler)(inputOf(reconciler, given))
}

/** The fields of an outcome that a row of `given` compares. */
type Expected = { readonly [Field in keyof Outcome]?: unknown }
type Row = [what: string, holds: () => Promise<void>]

/**
 * Returns a row of a table of decisions, as rows of `lawsOf` for a test runner: what is given, and what the function
 * returns. Objects may have more fields than those that are named; lists have the same length. `apply` is compared by kind
 * and name in any order; an object that `stages` holds is expected with `stage: { action: 'Hold' }`. `throws` expects an
 * error whose message contains the text.
 *
 * @example
 * import { given } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const rows = [
 *   given('a new website', website, { object }).returns({ status: { ready: 0 } }),
 *   given('no page', website, { object: Website.of({ metadata: { name: 'a' } } as never) }).throws('spec.html'),
 * ]
 * for (const [, holds] of rows) await holds()
 * rows.map(([what]) => what) // => ['a new website', 'no page']
 */
export function given(
  what: string,
  reconciler: Reconciler,
  input: Given,
): { returns(expected: Expected): Row; throws(message: string): Row } {
  const decision = async (): Promise<Outcome | Error> =>
    outcomeOf(reconciler, input).catch((error: unknown) => error as Error)
  return {
    returns: (expected) => [
      what,
      async () => {
        const outcome = await decision()
        if (outcome instanceof Error) throw outcome
        const wanted = JSON.parse(JSON.stringify(expected)) as Wanted
        const lines = differencesOf(wanted, outcome)
        const sides = ['expected', 'returned'] as const
        if (lines.length > 0)
          throw new LawBroken(`${reconciler.name} returns otherwise, given ${what}`, { lines, sides })
      },
    ],
    throws: (message) => [
      what,
      async () => {
        const outcome = await decision()
        if (outcome instanceof Error && outcome.message.includes(message)) return
        const instead = outcome instanceof Error ? `throws ${outcome.message}` : 'returns an outcome'
        throw new LawBroken(`${reconciler.name} ${instead}, instead of an error with "${message}", given ${what}`)
      },
    ],
  }
}

interface Wanted extends Record<string, unknown> {
  apply?: Entry[]
}
/** What an expected object may name to be found. */
interface Entry {
  apiVersion?: string
  kind?: string
  metadata?: { name?: string; namespace?: string }
}

/** `apply` is a set: its objects are compared by kind and name, and one that names less is any that is left. */
function differencesOf(expected: Wanted, outcome: Outcome): string[] {
  if (!Array.isArray(expected.apply) || outcome.apply === undefined)
    return changesBetween(expected, named(outcome, expected))
  const left = [...outcome.apply]
  const lines = expected.apply
    .toSorted((one, other) => idOf(other).length - idOf(one).length)
    .flatMap((entry) => {
      const at = left.findIndex((object) => idOf(entry).every((part) => idOf(object).includes(part)))
      const object = at === -1 ? undefined : left.splice(at, 1)[0]
      return inApply(object ?? entry, entry, object && named(withAction(object), { ...actionOf(object), ...entry }))
    })
  const more = left.flatMap((object) => inApply(object, undefined, withAction(object)))
  const [{ apply: _, ...others }, { apply: __, ...returned }] = [expected, outcome]
  return [...changesBetween(others, named(returned, others)), ...lines, ...more]
}

const idOf = ({ apiVersion, kind, metadata: { name, namespace } = {} }: Entry): string[] =>
  Object.entries({ apiVersion, kind, name, namespace }).flatMap(([field, value]) => (value ? `${field} ${value}` : []))

function inApply({ kind, metadata }: Entry, expected: unknown, returned: unknown): string[] {
  const what = [kind, metadata?.name].filter(Boolean).join(' ')
  return changesBetween({ apply: { [what]: expected } }, { apply: { [what]: returned } })
}

/** Whether an object is held or to be removed is compared always: it is not applied. */
function actionOf({ stage }: KubeObject & { stage?: { action?: string } }): { stage?: { action: string } } {
  return stage?.action === 'Hold' || stage?.action === 'Remove' ? { stage: { action: stage.action } } : {}
}

/** A long line is cut: what is not applied says so first. */
const withAction = (object: KubeObject): KubeObject => ({ ...actionOf(object), ...object })

/** Leaves out the fields of objects that the expected value does not name. */
function named(value: unknown, expected: unknown): unknown {
  if (Array.isArray(value) && Array.isArray(expected)) return value.map((one, index) => named(one, expected[index]))
  if (!isRecord(value) || !isRecord(expected)) return value
  const fields = Object.keys(expected).filter((name) => name in value)
  return Object.fromEntries(fields.map((name) => [name, named(value[name], expected[name])]))
}

/** Returns the function as a call on its input. */
export function invokeOf(reconciler: Reconciler): (input: RunInput) => Promise<Outcome> {
  const { invoke } = prepared(reconciler)
  return (input) => invoke(input, callContext())
}

/** Returns the decision of a function, whose input must stay unchanged, with its sets by name. */
export async function decided(invoke: (input: RunInput) => Promise<Outcome>, input: RunInput): Promise<unknown> {
  try {
    return setsByName(await invoke(deepFreeze(structuredClone(input))))
  } catch (error) {
    return { throws: String(error) }
  }
}

/** Returns an outcome without the order of its sets: `apply`, `patch` and `act` by the names of their objects. */
export function setsByName({ apply, patch, act, ...others }: Outcome): Record<string, unknown> {
  const ofStatus = (one: KubeObject) => ('status' in one ? ' status' : '')
  return {
    ...others,
    ...(apply && { apply: Object.fromEntries(apply.map((one) => [nameOf(one), one])) }),
    ...(patch && { patch: Object.fromEntries(patch.map((one) => [nameOf(one) + ofStatus(one), one])) }),
    ...(act && { act: Object.fromEntries(act.map((one) => [nameOf(one.on), one])) }),
  }
}

/** Returns the objects that a decision declares, by their names. An object without a namespace is in that of the given one. */
export function declaredBy(decision: unknown, { metadata: { namespace } }: KubeObject): Map<string, KubeObject> {
  const { apply = {} } = decision as { apply?: Record<string, KubeObject> }
  return new Map(Object.values(apply).map((one) => [nameOf({ ...one, metadata: { namespace, ...one.metadata } }), one]))
}

/** Whether a decision declares the object. */
export const declares = (decision: unknown, object: KubeObject): boolean =>
  declaredBy(decision, object).has(nameOf(object))

/** Returns two decisions on the same input. A function that reads a clock gets another time. */
export async function decidedTwice(
  invoke: (input: RunInput) => Promise<Outcome>,
  input: RunInput,
): Promise<[first: unknown, second: unknown]> {
  const first = await decided(invoke, input)
  for (const before = Date.now(); Date.now() === before; );
  return [first, await decided(invoke, input)]
}

export const callContext = (): RunContext => ({ signal: new AbortController().signal, log: quiet })

export function inputOf(reconciler: Reconciler, given: Given): RunInput {
  const { others = [], now, attempt = 0 } = given
  const object = given.object && withBirth(withUid(given.object), timeOf(now))
  const { spec } = prepared(reconciler)
  const identity = identityOf(reconciler.name, spec)
  const finalizing = given.finalizing ?? (object !== null && isFinalizing(object, identity, spec))
  const isGoing = object?.metadata.deletionTimestamp !== undefined
  if (isGoing && spec.finalize && given.finalizing === undefined && !finalizing)
    throw new RangeError(notCalled(object, finalizerOf(identity)))
  const input = {
    object,
    owned: byKind(spec.owns, others, () => (other) => object !== null && isOwned(other, object, identity)),
    related: byKind(spec.related, others, (one) => (object === null ? () => false : relation(one)(object))),
    attempt,
    now: timeOf(now).toISOString(),
    finalizing,
    ...(given.refused !== undefined && { refused: refusedByKind(given.refused) }),
    ...(reconciler.external !== undefined && { external: given.external ?? null }),
    ...(given.performed !== undefined && { performed: given.performed }),
    ...(given.cluster !== undefined && { cluster: given.cluster }),
  }
  // Another input is another run, and each run draws other values.
  return { ...input, seed: JSON.stringify(input) }
}

const notCalled = (object: KubeObject, finalizer: string): string =>
  `${nameOf(object)} has a deletionTimestamp without the finalizer ${finalizer}, and no run calls the function for it: give it metadata.finalizers: ['${finalizer}']`

function refusedByKind(given: NonNullable<Given['refused']>): Record<string, Refusal[]> {
  const kinds: Record<string, Refusal[]> = {}
  for (const { kind, ...refusal } of given)
    (kinds[kindName(kind.kind, apiVersionOf(kind))] ??= []).push({ message: refusal.reason, ...refusal })
  return kinds
}

/** Returns the input that a dispatcher would observe for the object. */
export function worldOf({ identity, spec }: Reconciled, object: KubeObject, others: readonly KubeObject[]): World {
  const owned = spec.owns.flatMap((resource) =>
    others
      .filter((other) => isOfKind(other, resource) && isOwned(other, object, identity))
      .map((child) => ({ resource, object: child })),
  )
  const isRelated = spec.related.map((one) => ({ one, holds: relation(one)(object) }))
  const related = others.filter((other) => isRelated.some(({ one, holds }) => isOfKind(other, one) && holds(other)))
  const isPatched = patchRelations(spec, identity).map((one) => ({ one, holds: relation(one)(object) }))
  const patched = others.filter((other) => isPatched.some(({ one, holds }) => isOfKind(other, one) && holds(other)))
  return { object, owned, related, patched }
}

function byKind<Declared extends ResourceRef & { kind: string }>(
  declared: readonly Declared[],
  objects: readonly KubeObject[],
  selects: (one: Declared) => (object: KubeObject) => boolean,
): Record<string, KubeObject[]> {
  const kinds: Record<string, KubeObject[]> = {}
  for (const one of declared) {
    const found = objects.filter((object) => isOfKind(object, one)).filter(selects(one))
    const list = (kinds[kindName(one.kind, apiVersionOf(one))] ??= [])
    list.push(...found.filter((object) => !list.includes(object)))
  }
  return Object.fromEntries(Object.entries(kinds).map(([kind, found]) => [kind, found.map(asStored)]))
}

export const isOfKind = ({ kind, apiVersion }: KubeObject, wanted: ResourceRef & { kind: string }): boolean =>
  kind === wanted.kind && apiVersion === apiVersionOf(wanted)

/** Those of a kind, and of this name if one is given. Throws an Error if none has the name. */
export function ofName(objects: readonly KubeObject[], kind: Kind<unknown>, name: string | undefined): KubeObject[] {
  const found = objects.filter((one) => isOfKind(one, kind) && (name ?? one.metadata.name) === one.metadata.name)
  if (name !== undefined && found.length === 0) throw new Error(`there is no ${kind.kind} ${name}`)
  return found
}

/**
 * Whether the object counts as created by the reconciler. Without field managers, this is an object with a controller
 * reference and without the mark of another creator.
 */
export function isOwned(object: KubeObject, owner: KubeObject, identity: string): boolean {
  const creator = markedBy(owner, object)
  const isUnmarked = creator === undefined && retainerOf(object) === undefined
  return isOwnedBy(object, owner) && (creator === identity || isUnmarked)
}

/**
 * Returns the child as a dispatcher would have created it for the owner: in its namespace, with a controller owner
 * reference. `creator` names another reconciler or controller that has created it instead; the function does not see
 * such an object.
 *
 * @example
 * import { ConfigMap } from 'fairlead'
 * import { ownedBy } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const { metadata } = ownedBy(object, ConfigMap.of({ metadata: { name: 'page' } }))
 * metadata.ownerReferences?.[0]?.kind // => 'Website'
 */
export function ownedBy<Child extends KubeObject>(owner: KubeObject, child: Child, creator?: string): Child {
  const { apiVersion, kind, metadata } = withUid(owner)
  const { name, uid } = metadata
  const reference = { apiVersion, kind, name, uid, controller: true, blockOwnerDeletion: true }
  const namespace = metadata.namespace === undefined ? {} : { namespace: metadata.namespace }
  const owned = { ...child, metadata: { ...namespace, ...child.metadata, ownerReferences: [reference] } }
  if (creator === undefined) return owned
  const mark = { [RECONCILER_ANNOTATION]: ownershipMark(creator, withUid(owner), owned) }
  return { ...owned, metadata: { ...owned.metadata, annotations: { ...child.metadata.annotations, ...mark } } }
}

/** Adds the uid that the object would have in a simulation, if it has none. */
const withUid = (object: KubeObject): KubeObject & { metadata: { uid: string } } => ({
  ...object,
  metadata: { ...object.metadata, uid: object.metadata.uid ?? `${object.kind}/${object.metadata.name}#1` },
})

/** Adds the time of its creation, if it has none. */
function withBirth(object: KubeObject, now: Date): KubeObject {
  const creationTimestamp = `${now.toISOString().slice(0, 19)}Z`
  return { ...object, metadata: { creationTimestamp, ...object.metadata } }
}

interface Prepared {
  spec: ReconcilerSpec
  invoke: ReturnType<typeof toInvoke>
}

const known = new WeakMap<Reconciler, Prepared>()

/** Returns a reconciler that differs in its function alone: it returns this outcome each time. */
export function thatAlwaysReturns<For extends Kind<unknown>>(
  reconciler: Reconciler<For>,
  outcome: Outcome,
): Reconciler<For> {
  const constant = { ...reconciler }
  const { spec } = prepared(reconciler)
  return preparedAs(constant, { spec, invoke: async () => structuredClone(outcome) })
}

/** Returns the reconciler, of which simulations call this function, under this spec. */
export function preparedAs<R extends Reconciler>(
  reconciler: R,
  { spec, invoke }: { spec: Omit<ReconcilerSpec, 'paused' | 'dryRun'>; invoke: Invoke },
): R {
  known.set(reconciler, { spec: { ...spec, paused: false, dryRun: false }, invoke: invoke as Prepared['invoke'] })
  return reconciler
}

/** Prepares a reconciler once, as a dispatcher does: building its schemas takes longer than a decision. */
export function prepared(reconciler: Reconciler): Prepared {
  const before = known.get(reconciler)
  if (before) return before
  preparedAs(reconciler, { spec: manifest(reconciler).spec, invoke: toInvoke(reconciler) })
  return prepared(reconciler)
}

/** An object as a cluster in memory stores it: without defaults, and at first without a status. */
export type StoredBy<K> =
  K extends Resource<infer Spec, infer Status>
    ? Pick<KubeObject, 'apiVersion' | 'kind' | 'metadata'> & {
        spec: z.input<Spec>
        status?: Partial<z.output<Status>> & KeptStatus
      }
    : unknown extends ObservedBy<K>
      ? KubeObject
      : ObservedBy<K>

/** `ConfigMap default/a` */
export const nameOf = ({ kind, apiVersion, metadata: { namespace, name } }: Act['on']): string => {
  const group = apiVersion.includes('/') ? `.${apiVersion.split('/')[0]}` : ''
  return `${kind}${group} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}

/** The kind and name of an object without its numbers and digests: the same for each of a series. */
export const seriesOf = (object: KubeObject): string => nameOf(object).replaceAll(/[0-9a-f]*\d[0-9a-f]*/g, '#')
