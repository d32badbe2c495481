import { type Act, type ActVerb, apiVersionOf, isRecord, type KubeObject, namespacedName } from '#contracts'
import type { ActedResource, ReconcilerSpec } from '#spec'
import { fingerprint } from './compare.ts'
import { actTarget, type NoOps } from './no-ops.ts'
import type { PlainOutcome } from './outcome.ts'
import { called, type Family, type World } from './world.ts'

/*
 * The acts of an outcome: requests to a subresource of an observed object, each bound to the version that was observed
 * (docs/decisions/0096-acts.md). What is known of the last act on an object decides about the next:
 *
 *   nothing, or of another act after an
 *   edit of the primary                 → send
 *   it was performed on this version,
 *   or this version is past             → nothing: the next version of the object, or its end, runs the primary.
 *                                         If it has changed nothing, none comes, and nothing waits for it
 *   it was performed on another version,
 *   it waits, or it was another act     → send after a pause: a function that changes its mind all the time is braked too
 */

/** The request of one act. */
export interface PlannedAct {
  /** Where NoOps has what is known of it. */
  target: string
  verb: ActVerb
  act: Act
  resource: ActedResource
  /** As observed. The act is for this version only. */
  object: KubeObject
  fingerprint: string
  /** The primary, by editOf(). */
  on: string
  /** How often acts on the object were sent before, not long ago. */
  times: number
}

/** Why an act waits. */
export interface Waiting {
  /** CamelCase */
  reason: string
  message: string
}

/** The answer to an act. Without fields: it was performed, or its object is gone. */
export interface Acted {
  /** The object has changed since it was observed. */
  isPast?: true
  /** The object has the version that was observed: the result was there already. */
  isUnchanged?: true
  /** Not now, in the state of other objects. Nothing is wrong. */
  waits?: Waiting & { retryAfterSeconds: number | undefined }
}

export interface ActsPlan {
  acts: PlannedAct[]
  /** When acts are due that are not sent now. */
  due: Date[]
  /** The results of acts are not observed yet. Until they are, the primary is neither deleted nor finalized. */
  isActing: boolean
  findings: string[]
}

/** What is known of the last act on one object, as JSON in NoOps. */
interface Known {
  act: string
  /** The primary, by editOf(). */
  on: string
  /** Undefined: it was not performed. */
  version?: string | undefined
  isUnchanged?: true
  times: number
  /** No act is sent before this time, in milliseconds, unless it is another one after an edit of the primary. */
  untilMs: number
  waits?: Waiting
}

const FIRST_PAUSE_MS = 5000
const LONGEST_PAUSE_MS = 60_000
/** After this time without an act on the object, its first pause counts again. */
const FORGOTTEN_MS = 600_000

/** Returns the acts of the outcome that are to be sent now. */
export function planActs(
  spec: Pick<ReconcilerSpec, 'acts'>,
  world: Family & Pick<World, 'related'>,
  wanted: NonNullable<PlainOutcome['act']>,
  { noOps, now }: { noOps: NoOps; now: Date },
): ActsPlan {
  // What waits is told to the function until then, also if it does not ask for it any more.
  const due = waitingActs(spec, world, noOps, now).map(({ untilMs }) => new Date(untilMs))
  const plan: ActsPlan = { acts: [], due, isActing: false, findings: [] }
  if (wanted.length === 0) return plan
  const places = new Map(observed(world).map((object) => [placeOf(object), object]))
  const taken = new Set<KubeObject>()
  const on = editOf(world.object)
  for (const act of wanted) {
    const object = places.get(placeOf(act.on))
    const declared = spec.acts?.filter((one) => isDeclared(one, act)) ?? []
    const resource = declared.find((one) => object !== undefined && isOfSigner(one, object)) ?? declared[0]
    const finding = faultOf(world, act, resource, object, taken)
    if (finding !== undefined) plan.findings.push(finding)
    if (resource === undefined || object === undefined || finding !== undefined) continue
    taken.add(object)
    const content = fingerprint(act)
    const target = actTarget(world.object, object)
    const known = knownIn(noOps, target)
    const same = known?.act === content ? known : undefined
    const isPerformed = same?.version !== undefined && same.version === object.metadata.resourceVersion
    plan.isActing ||= !isPerformed || same.isUnchanged !== true
    if (isPerformed) continue
    const last = same ?? (known?.on === on ? known : undefined)
    if (last !== undefined && last.untilMs > now.getTime()) {
      plan.due.push(new Date(last.untilMs))
      continue
    }
    const times = last !== undefined && now.getTime() - last.untilMs < FORGOTTEN_MS ? last.times : 0
    plan.acts.push({ target, verb: verbOf(act), act, resource, object, fingerprint: content, on, times })
  }
  return plan
}

/** Returns what is known after the answer, for NoOps. */
export function knownAfter(
  { target, object, fingerprint: act, on, times }: PlannedAct,
  { isPast, isUnchanged, waits }: Acted,
  now: Date,
): { target: string; value: string } {
  const askedMs = (waits?.retryAfterSeconds ?? 0) * 1000
  const pauseMs = isPast ? 0 : Math.max(askedMs, Math.min(FIRST_PAUSE_MS * 2 ** times, LONGEST_PAUSE_MS))
  const known: Known = {
    act,
    on,
    version: waits === undefined ? object.metadata.resourceVersion : undefined,
    times: isPast ? times : times + 1,
    untilMs: now.getTime() + pauseMs,
    ...(isUnchanged && { isUnchanged }),
    ...(waits && { waits: { reason: waits.reason, message: waits.message } }),
  }
  return { target, value: JSON.stringify(known) }
}

/** Returns the acts that wait, as the function's first input has them. Otherwise its status would change twice in each run. */
export const waitingActs = (
  { acts }: Pick<ReconcilerSpec, 'acts'>,
  world: Family & Pick<World, 'related'>,
  noOps: NoOps,
  now: Date,
): { object: KubeObject; waits: Waiting; untilMs: number }[] =>
  acts === undefined
    ? []
    : observed(world).flatMap((object) => {
        const { waits, untilMs = 0 } = knownIn(noOps, actTarget(world.object, object)) ?? {}
        return waits === undefined || untilMs <= now.getTime() ? [] : [{ object, waits, untilMs }]
      })

/** Equal for versions between which nobody has edited, paused or deleted the object. Its status does not count. */
export function editOf(object: KubeObject): string {
  const { metadata, status: _, ...content } = object
  const { generation, deletionTimestamp, labels, annotations } = metadata
  return fingerprint([generation ?? content, deletionTimestamp, labels, annotations])
}

/** Returns why the act is not sent: it is on a request of a signer that is not declared. */
export function refusalOfSigner({ verb, resource, object }: PlannedAct): string | undefined {
  if (isOfSigner(resource, object)) return undefined
  const signer = signerOf(object)
  const whose = signer === undefined ? 'its signer is not observed' : `its signer is ${signer}`
  return `cannot ${verb} ${called(object)}: ${whose}, and "acts" declares ${resource.signers?.join(', ')}: add it to "signers", or do not return the act`
}

const signerOf = ({ spec }: KubeObject): string | undefined => {
  const name = isRecord(spec) ? spec['signerName'] : undefined
  return typeof name === 'string' ? name : undefined
}

/** `example.com/*` is the form in which Kubernetes names all signers of a domain. */
function isOfSigner({ signers }: ActedResource, object: KubeObject): boolean {
  if (signers === undefined) return true
  const signer = signerOf(object)
  return signer !== undefined && [signer, `${signer.split('/')[0]}/*`].some((one) => signers.includes(one))
}

/** Equal for acts of the same content on one object. */
export const actId = ({ target, fingerprint: content }: PlannedAct): string => `${target} ${content}`

/** Returns acts as records may have them. A function over HTTP may have returned anything. */
export const toldActs = (acts: unknown): Act[] =>
  (Array.isArray(acts) ? acts.filter(isRecord) : []).map(({ act, on, node, replicas, reason, message }) => {
    const { apiVersion, kind, metadata } = isRecord(on) ? on : {}
    const { name, namespace } = isRecord(metadata) ? metadata : {}
    return { act, on: { apiVersion, kind, metadata: { name, namespace } }, node, replicas, reason, message } as Act
  })

/** `Evict Pod shop/web-0` */
export const actText = ({ act, object }: Pick<PlannedAct, 'act' | 'object'>): string => `${act.act} ${called(object)}`

const knownIn = (noOps: NoOps, target: string): Known | undefined => {
  const value = noOps[target]
  return value === undefined ? undefined : (JSON.parse(value) as Known)
}

const verbOf = ({ act }: Act): ActVerb => act.toLowerCase() as ActVerb

const isDeclared = (declared: ActedResource, { act, on }: Act): boolean =>
  declared.act === act && declared.kind === on.kind && apiVersionOf(declared) === on.apiVersion

const observed = ({ object, owned, related }: Family & Pick<World, 'related'>): KubeObject[] => [
  object,
  ...owned.map((child) => child.object),
  ...related,
]

const placeOf = ({ apiVersion, kind, metadata }: Act['on']): string =>
  `${apiVersion} ${kind} ${namespacedName(metadata)}`

function faultOf(
  world: Family,
  act: Act,
  resource: ActedResource | undefined,
  object: KubeObject | undefined,
  taken: ReadonlySet<KubeObject>,
): string | undefined {
  const what = `cannot ${verbOf(act)} ${called(act.on)}`
  if (resource === undefined) return `${what}: add { ...${act.on.kind}, act: '${act.act}' } to "acts"`
  if (object === undefined)
    return `${what}: the function does not observe it. Act on an object that "related" or "owned" has returned`
  if (taken.has(object)) return `${what}: it is in "act" twice`
  const home = world.object.metadata.namespace
  const { namespace } = object.metadata
  if (resource.within === 'Namespace' && home !== undefined && namespace !== undefined && namespace !== home)
    return `${what}: it is outside of namespace ${home}: declare the act with within: 'Cluster'`
  return undefined
}
