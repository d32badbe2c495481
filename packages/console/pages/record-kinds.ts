import { type Action, toGet } from '#console/access'
import { type KubeObject, kindName, type ResourceRef, type RunRecord } from '#contracts'
import type { StoredRun } from '#events'
import { type InputChange, objectOfCause } from '#inspect'
import { crossesNamespaces, isRefused, type ReconcilerSpec, readReconciler } from '#spec'
import { type Ask, primaries } from './page.ts'

/** What a person may see of a record. */
export interface Seen {
  /** Whether the person may get the objects of the kind that the record names. */
  kind(name: string): boolean
  /** True: they may get all objects of the record, and every kind that the reconciler reads or writes. */
  all: boolean
}

/** A kind in one namespace, or in all. */
interface Place {
  kind: string
  /** Undefined: the record does not have it. */
  group: string | undefined
  namespace: string | undefined
}

/** For a kind in more namespaces, the right to all namespaces is asked for: a person has a limited number of questions. */
const MOST_NAMESPACES = 20

/**
 * A run has seen and written objects of other kinds than its own. Its record may be older than the spec of the
 * Reconciler, so the record counts too.
 */
export async function kindsSeen(ask: Ask, record: RunRecord): Promise<Seen> {
  const spec = (await specs(ask)).get(record.reconciler)
  const places = [...(spec ? placesOf(spec, record.namespace) : []), ...placesIn(record)]
  const answers = await Promise.all(distinct(places).map(async (one) => ({ ...one, isSeen: await mayGet(ask, one) })))
  const known = new Set(answers.map(({ kind }) => kind))
  const refused = new Set(answers.filter(({ isSeen }) => !isSeen).map(({ kind }) => kind))
  return { kind: (name) => known.has(name) && !refused.has(name), all: spec !== undefined && refused.size === 0 }
}

/**
 * Whether a person may see a run: they may get its object. The record may be of a former Reconciler of that name, for
 * another kind.
 */
export async function maySee(
  ask: Ask,
  { record }: Pick<StoredRun, 'record'>,
  toSee: (kind: ResourceRef, namespace: string | undefined, name: string) => Action = toGet,
): Promise<boolean> {
  const { reconciler, namespace, name, laps } = record
  const present = (await primaries(ask)).get(reconciler)
  if (present === undefined || !(await ask.may(toSee(present, namespace, name)))) return false
  const [own] = laps.flatMap(({ input }) => (input.object === null ? [] : [placeOf(input.object)]))
  if (own === undefined || (own.kind === present.kind && own.group === present.group)) return true
  return ask.may(toSee(await resourceOf(ask, own), namespace, name))
}

/** Returns the runs without the names of causes that the person may not get. */
export const withSeenCauses = (ask: Ask, runs: readonly StoredRun[]): Promise<StoredRun[]> =>
  Promise.all(
    runs.map(async (run) => {
      const { causes } = run.record
      if (causes === undefined) return run
      return { ...run, record: { ...run.record, causes: await Promise.all(causes.map((one) => seenCause(ask, one))) } }
    }),
  )

async function seenCause(ask: Ask, cause: string): Promise<string> {
  const object = objectOfCause(cause)
  if (object === undefined || (await mayGet(ask, placeOf(`${object.kind} ${object.name}`)))) return cause
  return `${object.verb} ${object.kind.split('.')[0]} (not shown)`
}

/** Returns the changes without the names of objects that the person may not get. */
export const seenChanges = (ask: Ask, changes: readonly InputChange[]): Promise<InputChange[]> =>
  Promise.all(
    changes.map(async (change) => {
      if (await mayGet(ask, placeOf(change.object))) return change
      return { is: change.is, object: `${change.object.split(' ')[0]} (not shown)`, fields: [] }
    }),
  )

const mayGet = async (ask: Ask, place: Place): Promise<boolean> =>
  ask.may(toGet(await resourceOf(ask, place), place.namespace))

function placesOf(spec: ReconcilerSpec, namespace: string | undefined): Place[] {
  const own = [spec.for, ...spec.owns].map((one) => ({ ...one, namespace }))
  const related = spec.related.map((one) => ({ ...one, namespace: crossesNamespaces(one) ? undefined : namespace }))
  const patched = (spec.patches ?? []).map((one) => ({
    ...one,
    namespace: one.within === 'Cluster' ? undefined : namespace,
  }))
  return [...own, ...related, ...patched]
}

/** The kinds and namespaces of all objects that a record names. */
function placesIn({ namespace, laps, objects = {}, causes = [] }: RunRecord): Place[] {
  const inputs = laps.map(({ input }) => input)
  const versions = inputs.flatMap(({ object, owned, related }) => [
    ...(object === null ? [] : [object]),
    ...[owned, related].flatMap((kinds) => Object.values(kinds).flat()),
  ])
  const causesNamed = causes.map(objectOfCause).flatMap((one) => (one ? [`${one.kind} ${one.name}`] : []))
  const named = [...Object.keys(objects), ...versions, ...causesNamed].map(placeOf)
  // An outcome that was refused may have incomplete objects.
  const applied = laps
    .flatMap(({ outcome }): [object: Partial<KubeObject>, home: string | undefined][] => [
      ...(outcome?.apply ?? []).map((one): [KubeObject, string | undefined] => [one, namespace]),
      ...(outcome?.patch ?? []).map((one): [KubeObject, undefined] => [one, undefined]),
      ...(outcome?.act ?? []).map(({ on }): [KubeObject, undefined] => [on as KubeObject, undefined]),
    ])
    .map(([{ kind = '', apiVersion = '', metadata }, home]) => ({
      ...placeOf(kindName(kind, apiVersion)),
      namespace: metadata?.namespace ?? home,
    }))
  const refused = inputs.flatMap(({ refused: kinds = {} }) =>
    Object.entries(kinds).flatMap(([kind, all]) => all.map((one) => ({ ...placeOf(kind), namespace: one.namespace }))),
  )
  const known = [...named, ...applied, ...refused]
  const written = laps
    .flatMap(({ writes }) => writes)
    .map((write) => ({
      kind: write.kind,
      group: known.find(({ kind }) => kind === write.kind)?.group,
      namespace: write.namespace,
    }))
  return [...known, ...written]
}

/** Parses `Deployment.v1.apps shop/web@123`, with or without the version and the name. */
function placeOf(text: string): Place {
  const [kinds = '', called = ''] = text.split(' ')
  const [kind = '', , ...group] = kinds.split('.')
  return { kind, group: group.join('.'), namespace: called.includes('/') ? called.split('/')[0] : undefined }
}

function distinct(places: readonly Place[]): Place[] {
  const byKind = Map.groupBy(places, ({ kind, group }) => JSON.stringify([kind, group]))
  return [...byKind.values()].flatMap((all) => {
    const byNamespace = new Map(all.map((place) => [place.namespace, place]))
    if (byNamespace.size <= MOST_NAMESPACES) return [...byNamespace.values()]
    return all.slice(0, 1).map((place) => ({ ...place, namespace: undefined }))
  })
}

/**
 * Returns the resource of a kind, by the Reconcilers or by the API server. For a kind that neither has, it is every
 * resource of the group: only a person who may get all of them may get this one.
 */
async function resourceOf(ask: Ask, { kind, group }: Place): Promise<ResourceRef> {
  const isCalled = (one: { kind: string; group: string }) =>
    one.kind === kind && (group === undefined || one.group === group)
  const declared = [...(await specs(ask)).values()].flatMap((spec) => [
    spec.for,
    ...spec.owns,
    ...spec.related,
    ...(spec.patches ?? []),
  ])
  const found = declared.find(isCalled) ?? (await ask.data.served())?.find(isCalled)
  return found ?? { group: group ?? '*', version: '*', resource: '*' }
}

async function specs({ data }: Ask): Promise<Map<string, ReconcilerSpec>> {
  const found = new Map<string, ReconcilerSpec>()
  for (const object of await data.reconcilers()) {
    const spec = readReconciler(object)
    if (!isRefused(spec)) found.set(object.metadata.name, spec)
  }
  return found
}
