import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { KubeObject } from 'fairlead'
import type { StatusCheck } from './controller.ts'
import { type HookAnswer, isRecord, type StatusOutcome, soonest } from './protocol.ts'
import { differs } from './recreate.ts'

/** The annotation of the latest revision with the time of the pass that has moved a child to it last. */
const MOVED = 'fairlead.dev/moved'

type Fields = Record<string, unknown>

/** What a parent was for some of its children, as Metacontroller keeps it. */
interface RevisionObject extends KubeObject {
  parentPatch?: Fields
  children?: { apiGroup: string; kind: string; names: string[] }[]
}

/** A kind of children that are changed one by one. */
interface RollingKind {
  apiGroup: string
  kind: string
  isInPlace: boolean
  conditions: readonly StatusCheck[]
}

/** A parent as it is, or was, and what the hook answers about it. */
interface Revision {
  patch: Fields
  object: RevisionObject | undefined
  answer: HookAnswer
  /** By keys, in the order of the answer. */
  wanted: Map<string, KubeObject>
}

interface Rollout {
  parent: KubeObject
  /** The resource of the parent, with its group: the prefix of names. */
  resource: string
  fieldPaths: readonly string[]
  revisions: readonly KubeObject[]
  labels: Record<string, string>
  children: readonly KubeObject[]
  rolling: readonly RollingKind[]
  now: Date
  ask: (parent: KubeObject) => Promise<HookAnswer>
  /** Checks the objects of an answer, and completes them. Not called if all answers have finalized. */
  complete: (objects: readonly KubeObject[]) => KubeObject[]
}

type Condition = StatusOutcome['conditions'][number]

/** What all revisions together want. `condition`: how far the rollout is. */
interface RolledOut {
  answer: HookAnswer
  revisions: KubeObject[]
  condition?: Condition
}

/**
 * Asks the hook once for each revision of the parent that children are at, and returns each child as its revision wants it. In a
 * pass, one child at most is moved to the latest revision, and only while all that are there are as it wants them and pass their
 * status checks. A moved child changes when the revisions are stored, so that a crash moves no second one.
 */
export async function rolledOut(rollout: Rollout): Promise<RolledOut> {
  const { children, rolling, now, complete } = rollout
  const [latest, ...older] = await revisionsOf(rollout)
  const all = [latest, ...older]
  if (all.every(({ answer }) => answer.finalized)) return { answer: { ...latest.answer, objects: [] }, revisions: [] }
  for (const one of all) one.wanted = byKey(complete(one.answer.objects))
  const kindOf = (key: string) => rolling.find((one) => key.startsWith(keyOf(one, '')))
  const there = byKey(children)
  const own = [...latest.wanted].filter(([key]) => kindOf(key) !== undefined)
  const claims = claimsOf(all, own, there)
  const [next] = own.find(([key]) => claims.get(key) !== latest) ?? []
  const atLatest = own.filter(([key]) => claims.get(key) === latest)
  const [waits] = atLatest.flatMap(([key, wanted]) => unready(kindOf(key), there.get(key), wanted) ?? [])
  const hasMoved = latest.object?.metadata.annotations?.[MOVED] === now.toISOString()
  const moved = waits === undefined && !hasMoved ? next : undefined
  const objects = [...latest.wanted].map(([key, wanted]) => claims.get(key)?.wanted.get(key) ?? wanted)
  if (moved !== undefined) claims.set(moved, latest)
  // The revision of the pass that has moved a child causes no run.
  const soon = next !== undefined && waits === undefined ? 1 : 0
  const revisions = all.flatMap((one) => {
    const keys = own.flatMap(([key]) => (claims.get(key) === one ? key : []))
    if (one !== latest && keys.length === 0) return []
    return revisionObject(rollout, one, keys, one === latest && moved !== undefined ? now.toISOString() : undefined)
  })
  return {
    answer: {
      ...latest.answer,
      objects,
      finalized: false,
      resyncAfterSeconds: soonest(soon, ...all.map(({ answer }) => answer.resyncAfterSeconds)),
    },
    revisions,
    condition: conditionOf(next === undefined ? undefined : latest.wanted.get(next), waits, revisions[0]),
  }
}

/** Returns the parent as it is, and as each stored revision has it, with the answers. The first one is the latest. */
async function revisionsOf({ parent, fieldPaths, revisions, ask }: Rollout): Promise<[Revision, ...Revision[]]> {
  const present = patchOf(parent, fieldPaths)
  const stored = (revisions as RevisionObject[]).filter(({ metadata }) => metadata.deletionTimestamp === undefined)
  const isPresent = ({ parentPatch = {} }: RevisionObject) => isDeepStrictEqual(parentPatch, present)
  const revisionOf = async (patch: Fields, object: RevisionObject | undefined): Promise<Revision> => {
    const answer = await ask(fieldPaths.reduce((one, path) => withField(one, path, patch), parent))
    return { patch, object, answer, wanted: new Map() }
  }
  const older = stored.filter((one) => !isPresent(one)).map((one) => revisionOf(one.parentPatch ?? {}, one))
  const [latest, ...others] = await Promise.all([revisionOf(present, stored.find(isPresent)), ...older])
  return [latest, ...others]
}

/**
 * Returns which revision has each rolling child that the latest one wants. The latest has those that nobody claims, and those that
 * are as it wants them.
 */
function claimsOf(all: readonly Revision[], own: readonly [string, KubeObject][], there: Map<string, KubeObject>) {
  const [latest] = all as [Revision]
  const claims = new Map<string, Revision>()
  for (const [key, wanted] of own) {
    const observed = there.get(key)
    const claim = all.find(({ object }) =>
      object?.children?.some((one) => one.names.some((name) => keyOf(one, name) === key)),
    )
    const isThere = observed !== undefined && !differs(observed, wanted)
    claims.set(key, claim === undefined || isThere ? latest : claim)
  }
  return claims
}

/** Returns why a child of the latest revision keeps the next one from being moved. */
function unready(
  rolling: RollingKind | undefined,
  observed: KubeObject | undefined,
  wanted: KubeObject,
): string | undefined {
  const what = `child ${wanted.kind} ${wanted.metadata.name}`
  if (rolling === undefined) return undefined
  if (observed === undefined) return `missing ${what}`
  if (observed.metadata.deletionTimestamp !== undefined || differs(observed, wanted))
    return `${what} is not updated yet`
  const { observedGeneration, conditions } = (isRecord(observed.status) ? observed.status : {}) as Fields
  const isBehind = typeof observedGeneration === 'number' && observedGeneration > 0
  if (rolling.isInPlace && isBehind && observedGeneration < (observed.metadata.generation ?? 0))
    return `${what} has not observed its latest spec`
  const there = Array.isArray(conditions) ? conditions.filter(isRecord) : []
  for (const { type, ...checks } of rolling.conditions) {
    const found = there.find((one) => one['type'] === type)
    if (found === undefined) return `${what} fails its status check: it has no condition ${type}`
    for (const field of ['status', 'reason'] as const)
      if (checks[field] !== undefined && found[field] !== checks[field])
        return `${what} fails its status check: the ${field} of its condition ${type} is ${String(found[field])}, not ${checks[field]}`
  }
  return undefined
}

function conditionOf(
  next: KubeObject | undefined,
  waits: string | undefined,
  latest: KubeObject | undefined,
): Condition {
  const type = 'Updated'
  if (next === undefined) {
    const message = `latest ControllerRevision: ${latest?.metadata.name}`
    return { type, status: 'True', reason: 'OnLatestRevision', message }
  }
  return waits === undefined
    ? { type, status: 'False', reason: 'RolloutProgressing', message: `updating ${next.kind} ${next.metadata.name}` }
    : { type, status: 'False', reason: 'RolloutWaiting', message: waits }
}

function revisionObject(
  { parent, resource, labels }: Rollout,
  { patch, object }: Revision,
  keys: readonly string[],
  moved: string | undefined,
): KubeObject {
  const hash = createHash('sha1')
    .update(`${parent.metadata.uid}${JSON.stringify(patch)}`)
    .digest('hex')
  const time = moved ?? object?.metadata.annotations?.[MOVED]
  const names = Map.groupBy(
    keys.map((key) => key.split('/')),
    ([group, of]) => `${group}/${of}`,
  )
  return {
    apiVersion: 'metacontroller.k8s.io/v1alpha1',
    kind: 'ControllerRevision',
    metadata: {
      name: object?.metadata.name ?? `${resource.slice(0, 212)}-${hash}`,
      labels: object?.metadata.labels ?? labels,
      ...(time !== undefined && { annotations: { [MOVED]: time } }),
    },
    parentPatch: patch,
    children: [...names.values()].map((same) => {
      const [[apiGroup = '', of = ''] = []] = same
      return { apiGroup, kind: of, names: same.map(([, , name = '']) => name) }
    }),
  }
}

const keyOf = ({ apiGroup, kind: of }: { apiGroup: string; kind: string }, name: string): string =>
  `${apiGroup}/${of}/${name}`

const byKey = (objects: readonly KubeObject[]): Map<string, KubeObject> =>
  new Map(
    objects.map((one) => {
      const apiGroup = one.apiVersion.includes('/') ? (one.apiVersion.split('/')[0] ?? '') : ''
      return [keyOf({ apiGroup, kind: one.kind }, one.metadata.name), one]
    }),
  )

/** Returns the fields of a parent that make a revision. */
const patchOf = (parent: KubeObject, paths: readonly string[]): Fields =>
  paths.reduce<Fields>((patch, path) => withField(patch, path, parent as unknown as Fields), {})

/** Returns `to` with the field that `from` has at a path. Without it, `to` stays as it is. */
function withField<T extends object>(to: T, path: string, from: Fields): T {
  const [field = '', ...rest] = path.split('.')
  if (!Object.hasOwn(from, field)) return to
  const value = from[field]
  if (rest.length === 0) return { ...to, [field]: value }
  if (!isRecord(value)) return to
  const before = (to as Fields)[field]
  const after = withField(isRecord(before) ? before : {}, rest.join('.'), value)
  return Object.keys(after).length === 0 ? to : { ...to, [field]: after }
}
