import {
  apiVersionOf,
  type Invoke,
  type KubeObject,
  kindName,
  type Outcome,
  parseSelector,
  type RunInput,
} from '#contracts'
import { type Kind, type Reconciler, type RelatedKind, toInvoke } from '#sdk'

export interface Given {
  /** The object that is reconciled; null: it is gone. */
  object: KubeObject | null
  /** Whatever else is there. A run sees of it what a dispatcher would show: owned and related objects. */
  others?: readonly KubeObject[]
  now?: Date | string
  attempt?: number
  /** Default: whether the object is being deleted. */
  finalizing?: boolean
}

export const DEFAULT_NOW = '2030-01-01T00:00:00.000Z'
const quiet = { debug() {}, info() {}, warn() {}, error() {} }

/**
 * What a function decides on these objects at this time, as plain data. Rejects with what the function throws.
 *
 *     expect(await outcomeOf(at, { object: example, now: '2019-04-12T10:11:59Z' })).toEqual({ … })
 */
export function outcomeOf(reconciler: Reconciler, given: Given): Promise<Outcome> {
  return invokeOf(reconciler)(inputOf(reconciler, given))
}

/** The function as a plain call on its input. */
export function invokeOf(reconciler: Reconciler): (input: RunInput) => ReturnType<Invoke> {
  const invoke = toInvoke(reconciler)
  return (input) => invoke(input, { signal: new AbortController().signal, log: quiet })
}

export function inputOf(reconciler: Reconciler, given: Given): RunInput {
  const { others = [], now = DEFAULT_NOW, attempt = 0 } = given
  const object = given.object && withUid(given.object)
  return {
    object,
    owned: sorted(reconciler.owns, others, (child) => isOwned(child, object)),
    related: sorted(reconciler.related, others, (other, kind) => isRelated(other, kind)),
    attempt,
    now: new Date(now).toISOString(),
    finalizing: given.finalizing ?? object?.metadata.deletionTimestamp !== undefined,
  }
}

function sorted<K extends Kind<unknown>>(
  kinds: readonly K[],
  objects: readonly KubeObject[],
  belongs: (object: KubeObject, kind: K) => boolean,
): Record<string, KubeObject[]> {
  return Object.fromEntries(
    kinds.map((kind) => [
      kindName(kind.kind, apiVersionOf(kind)),
      objects.filter((object) => isOfKind(object, kind) && belongs(object, kind)).map(asObserved),
    ]),
  )
}

/** The values of Secrets do not travel. */
const asObserved = (object: KubeObject): KubeObject =>
  object.kind === 'Secret' && object.apiVersion === 'v1'
    ? { apiVersion: object.apiVersion, kind: object.kind, metadata: object.metadata }
    : object

export const isOfKind = ({ kind, apiVersion }: KubeObject, wanted: Kind<unknown>): boolean =>
  kind === wanted.kind && apiVersion === apiVersionOf(wanted)

const isOwned = ({ metadata }: KubeObject, owner: KubeObject | null): boolean =>
  owner !== null &&
  metadata.ownerReferences?.some(({ uid, controller }) => controller === true && uid === owner.metadata.uid) === true

const isRelated = ({ metadata }: KubeObject, { selector = '' }: RelatedKind): boolean =>
  parseSelector(selector)(metadata.labels ?? {})

/** The child as the dispatcher would have made it: in its owner's namespace, and controlled by it. */
export function ownedBy<Child extends KubeObject>(owner: KubeObject, child: Child): Child {
  const { apiVersion, kind, metadata } = withUid(owner)
  const reference = { apiVersion, kind, name: metadata.name, uid: metadata.uid, controller: true }
  const namespace = metadata.namespace === undefined ? {} : { namespace: metadata.namespace }
  return { ...child, metadata: { ...namespace, ...child.metadata, ownerReferences: [reference] } }
}

/** Objects of a table need no uid: one that has none gets the one that it would have in a simulation. */
const withUid = (object: KubeObject): KubeObject & { metadata: { uid: string } } => ({
  ...object,
  metadata: { ...object.metadata, uid: object.metadata.uid ?? `${object.kind}/${object.metadata.name}#1` },
})
