import { createHash } from 'node:crypto'
import {
  type EventReport,
  type Kind,
  type KubeObject,
  kind,
  type Reconciler,
  type RelatedKind,
  type Run,
  reconciler,
  TerminalError,
} from 'fairlead'
import { type Hook, notOffered, type ResourceRule } from './controller.ts'
import { RELATED, type RelatedGroup } from './customize.ts'
import type { HookName } from './hook.ts'
import { type Group, soonest, TEN_YEARS_S, withoutNull } from './protocol.ts'
import { calmSeconds, differs, withLastApplied } from './recreate.ts'

/** The kinds of the API server, with which a controller names resources. */
export type Served = Parameters<NonNullable<Reconciler['adapts']>['declare']>[1]

/** A run in which all kinds are plain objects. */
type AnyRun = Run<Kind<unknown>, Kind<unknown>, RelatedKind>

/** Who recreates is this adapter: it compares what is there with what the hook wants, and leaves out what differs. */
const STRATEGIES = {
  OnDelete: 'CreateOnly',
  Recreate: 'CreateOnly',
  InPlace: 'Apply',
  RollingRecreate: 'CreateOnly',
  RollingInPlace: 'Apply',
} as const

/** Rolling updates keep what the parent was in objects of this kind. */
export const REVISIONS = { apiVersion: 'metacontroller.k8s.io/v1alpha1', resource: 'controllerrevisions' }

export const isRolling = (method = ''): boolean => method.startsWith('Rolling')

/** Each call of a webhook has its own limit, and ends before. */
const LONGEST_RUN_S = 3600
/** As `--workers` of Metacontroller, for which the webhooks are made. */
const WORKERS = 5

/** What a controller declares for a Reconciler, and only an installation can change. */
export interface Declared {
  primary: Kind
  hasStatus: boolean
  owned: Kind[]
  /** The methods of the owned kinds, in their order. */
  methods: string[]
  /** With a rolling method: the kind of the revisions. */
  revisions: Kind | undefined
  /** The kinds that the customize hook may name. */
  related: RelatedKind[]
  selector: string | undefined
  ignoresStatus: boolean
  resyncSeconds: number | undefined
  isFinalizing: boolean
}

type Named = Pick<ResourceRule, 'apiVersion' | 'resource'>

export function refOf({ apiVersion, resource }: Named) {
  const [version = '', group = ''] = apiVersion.split('/').reverse()
  return { group, version, resource }
}

/** Finds the kinds of what a controller names, and throws a TerminalError, `NotOffered`, with all that are not served. */
export class Kinds {
  readonly #served: Served
  readonly #faults: string[] = []

  constructor(served: Served) {
    this.#served = served
  }

  of(named: Named, path: string): { kind: Kind; hasStatus: boolean } {
    const { group, version, resource } = refOf(named)
    const found = this.#served.find(
      (one) => one.group === group && one.version === version && one.resource === resource,
    )
    if (found === undefined)
      this.#faults.push(
        `${path}: ${resource} of ${named.apiVersion} is not served, or was not when the controller was installed`,
      )
    const hasStatus = found?.hasStatus === true
    return { kind: kind({ group, version, plural: resource, kind: found?.kind ?? resource }), hasStatus }
  }

  owned(
    rules: readonly (Named & { updateStrategy?: { method?: string | undefined } | undefined })[],
    path: string,
  ): Pick<Declared, 'owned' | 'methods' | 'revisions'> {
    const methods = rules.map(({ updateStrategy: { method = 'OnDelete' } = {} }) => method)
    const owned = rules.map((rule, index) => {
      const strategy = STRATEGIES[methods[index] as keyof typeof STRATEGIES]
      return { ...this.of(rule, `${path}[${index}]`).kind, strategy }
    })
    return { owned, methods, revisions: methods.some(isRolling) ? this.of(REVISIONS, path).kind : undefined }
  }

  /** The kinds that the controller grants to its customize hook. */
  related(controller: KubeObject, { customize }: Hooks): RelatedKind[] {
    if (customize === undefined) return []
    const named = grantedIn(controller)
    if (named.length === 0)
      this.#faults.push(
        `spec.hooks.customize needs the annotation ${RELATED} with the kinds that it may name, such as "configmaps.v1, deployments.v1.apps"`,
      )
    const within = customize.version === 'v1' ? 'Namespace' : 'Cluster'
    return named.map((one) => ({ ...this.of(one, `annotation ${RELATED}`).kind, within }))
  }

  demandAll(controller: KubeObject): void {
    if (this.#faults.length > 0) throw notOffered(controller, this.#faults)
  }
}

/** Returns what the annotation of a controller names: `RESOURCE.VERSION` or `RESOURCE.VERSION.GROUP`. */
const grantedIn = ({ metadata: { annotations = {} } }: KubeObject): Named[] =>
  (annotations[RELATED] ?? '').split(/[\s,]+/).flatMap((name) => {
    const [resource = '', version = '', ...group] = name.split('.')
    return resource === ''
      ? []
      : { resource, apiVersion: [...(group.length > 0 ? [group.join('.')] : []), version].join('/') }
  })

/** Returns the resources that the controller grants to its customize hook. */
export const grantedRefs = (controller: KubeObject, { customize }: Hooks): ReturnType<typeof refOf>[] =>
  customize === undefined ? [] : grantedIn(controller).map(refOf)

interface Hooks {
  sync?: Hook | undefined
  finalize?: Hook | undefined
  customize?: Hook | undefined
}

export const ofHooks = ({
  resyncPeriodSeconds = 0,
  hooks,
}: {
  resyncPeriodSeconds?: number | undefined
  hooks: Hooks
}) => ({
  resyncSeconds: resyncPeriodSeconds > 0 ? resyncPeriodSeconds : undefined,
  isFinalizing: hooks.finalize !== undefined,
})

/** Returns the name of a Reconciler. Names that do not fit are shortened to a hash. */
export function reconcilerName(prefix: string, ...parts: readonly string[]): string {
  const name = [prefix, ...parts].join('-')
  const fits = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/.test(name)
  // Endings of roles of other functions.
  const isTaken = /-(?:watch|inspect|related|impersonate|external)$/.test(name)
  return fits && !isTaken
    ? name
    : `${prefix}-${createHash('sha256').update(parts.join('/')).digest('hex').slice(0, 16)}`
}

/** What a hook is asked about, as a run has observed it. */
export interface Asked {
  hookName: HookName
  /** The controller as it is now. */
  present: KubeObject
  object: KubeObject
  groups: (Group & {
    method: string
    /** Those of the objects that the function may write and delete. */
    marked: readonly KubeObject[]
  })[]
  /** Of rolling updates. */
  revisions: readonly KubeObject[]
  /** What the customize hook may choose from. */
  related: readonly RelatedGroup[]
  run: AnyRun
}

const apiVersionOf = ({ group, version }: Pick<Kind, 'group' | 'version'>): string =>
  group === '' ? version : `${group}/${version}`

interface Declaration {
  name: string
  controller: KubeObject
  of: Kind
  declared: Declared
  /** Returns what the controller declares as it is now. Undefined: nothing of the primary kind. */
  again: (present: KubeObject) => Declared | undefined
  keepsStatus: boolean
  writes?: Reconciler['writes']
  /** Whether an observed object of an owned kind, which the object controls, is of this controller. */
  isOwn?: (child: KubeObject) => boolean
  decide: (asked: Asked) => unknown
}

/** Returns the function that a controller declares. It follows the hooks of the controller as it is now. */
export function functionOf(declaration: Declaration): Reconciler {
  const { name, controller, of, declared, keepsStatus, writes, isOwn = () => true, decide } = declaration
  const { primary, owned, methods, revisions = [], selector, resyncSeconds } = declared
  const live: RelatedKind = { ...of, fieldSelector: `metadata.name=${controller.metadata.name}` }
  // What Metacontroller has made is not marked as the function's own, but the hook has to know of it.
  const written = [...owned, revisions].flat()
  const seen = written.map((one): RelatedKind => ({ ...one, byOwner: true }))
  const run = (of: AnyRun, hookName: HookName) => {
    const present = (of.related(live) as KubeObject[]).find(
      ({ metadata }) => metadata.name === controller.metadata.name,
    )
    const stop = whyStopped(present, hookName, declaration)
    // Nothing is written, not even a condition: the fault is not that of the object.
    if (present === undefined || stop !== undefined)
      return { events: [stop], ...(hookName === 'finalize' && { requeueAfter: TEN_YEARS_S }) }
    const object = of.object as KubeObject
    const groups = written.map((one, index) => {
      const marked = of.owned(one)
      const there = controlledBy(object, [...(of.related(seen[index] as RelatedKind) as KubeObject[]), ...marked])
      return {
        apiVersion: apiVersionOf(one),
        kind: one.kind,
        objects: there.filter(isOwn),
        method: methods[index] ?? '',
        marked,
      }
    })
    const stored = declared.revisions && groups.pop()
    refuseUnmarked(stored)
    const related = declared.related.map((one) => ({
      apiVersion: apiVersionOf(one),
      kind: one.kind,
      resource: one.resource,
      objects: of.related(one) as KubeObject[],
    }))
    return decide({
      hookName,
      present,
      object,
      groups,
      revisions: stored?.marked ?? [],
      related,
      run: of,
    })
  }
  const made = reconciler<Kind<unknown>, Kind<unknown>, RelatedKind>({
    name,
    for: primary,
    ...(selector !== undefined && { selector }),
    owns: written,
    related: [live, ...seen, ...declared.related],
    ...(declared.ignoresStatus && { changes: ['Generation', 'Labels', 'Annotations'] }),
    ...(resyncSeconds !== undefined && { resyncSeconds }),
    ...(writes && { writes }),
    timeoutSeconds: LONGEST_RUN_S,
    concurrency: WORKERS,
    reconcile: (of) => run(of, 'sync') as undefined,
    ...(declared.isFinalizing && { finalize: (of) => run(of, 'finalize') as undefined }),
    // Also where a controller has lost its hook: what it was for may have the finalizer.
    formerFinalizers: [`metacontroller.io/${of.kind.toLowerCase()}-${controller.metadata.name}`],
  })
  return { ...made, ...(keepsStatus && { keepsStatus: true }) }
}

/**
 * Returns what keeps objects as they are: the controller is gone, or declares something that only an installation can change,
 * because its rights and watches are those of another declaration. What is being deleted needs only the kinds.
 */
function whyStopped(
  present: KubeObject | undefined,
  hookName: HookName,
  { of, controller, declared, again }: Declaration,
): EventReport | undefined {
  const what = `${of.kind} ${controller.metadata.name}`
  const warning = (reason: string, message: string): EventReport => ({ type: 'Warning', reason, message })
  if (present === undefined) return warning('ControllerGone', `there is no ${what}, so nothing is written or deleted`)
  try {
    const [now, before] = [again(present), declared].map((one) => one && JSON.stringify(essentials(one, hookName)))
    if (now === before) return undefined
  } catch (error) {
    if (!(error instanceof TerminalError)) throw error
    return warning(error.reason, error.message)
  }
  return warning(
    'ControllerChanged',
    `${what} has changed since it was installed: fairlead install --adapter metacontroller`,
  )
}

const essentials = (
  { primary, hasStatus, owned, methods, revisions, related, selector }: Declared,
  hookName: HookName,
) => [primary, hasStatus, owned, methods, revisions, related, ...(hookName === 'finalize' ? [] : [selector])]

/** Without a revision that Metacontroller has stored, its children would all change at once. */
function refuseUnmarked(stored: Asked['groups'][number] | undefined): void {
  const other = stored?.objects.find((one) => !stored.marked.some(({ metadata }) => metadata.uid === one.metadata.uid))
  if (other !== undefined)
    throw new TerminalError(
      `ControllerRevision ${other.metadata.name} is not handed over: fairlead install --adapter metacontroller`,
      { reason: 'NotHandedOver' },
    )
}

/** Returns the objects that this one controls, each once. */
function controlledBy({ metadata: { uid: owner } }: KubeObject, objects: readonly KubeObject[]): KubeObject[] {
  const isControlled = ({ metadata: { ownerReferences = [] } }: KubeObject) =>
    ownerReferences.some(({ controller, uid }) => controller === true && uid === owner)
  return [...new Map(objects.filter(isControlled).map((one) => [one.metadata.uid, one])).values()]
}

/** Whether garbage collection works on what the object owns, which nobody may disturb. */
export const isCollected = ({ metadata: { finalizers = [] } }: KubeObject): boolean =>
  finalizers.includes('foregroundDeletion') || finalizers.includes('orphan')

/**
 * Returns the objects of an answer, of two with one name the last. Throws an Error for one that is of no declared kind, or in
 * another namespace: the hook may answer otherwise later.
 */
export function wantedOf(
  { object, groups }: Pick<Asked, 'object' | 'groups'>,
  answered: readonly KubeObject[],
  field: string,
): KubeObject[] {
  const { namespace } = object.metadata
  const wanted = new Map<string, KubeObject>()
  for (const one of answered) {
    const { apiVersion, kind: of, metadata } = one
    const what = `${of} ${metadata.name} of the answer`
    const group = groups.find((other) => other.apiVersion === apiVersion && other.kind === of)
    if (group === undefined)
      throw new Error(`${what} is of ${apiVersion} ${of}, which is not in spec.${field} of the controller`)
    if (namespace !== undefined && (metadata.namespace ?? namespace) !== namespace)
      throw new Error(`${what} is in the namespace ${metadata.namespace}, and its parent is in ${namespace}`)
    const complete = namespace === undefined ? one : { ...one, metadata: { ...metadata, namespace } }
    wanted.set(placeOf(complete), complete)
  }
  return [...wanted.values()]
}

/**
 * Returns the objects to apply. An object that is to be recreated is left out, so that it is deleted; it is returned again when it
 * is gone. `again`: the seconds after which one may be deleted that stays for now, or 0.
 */
export function appliesOf(
  { groups, run: { now } }: Pick<Asked, 'groups' | 'run'>,
  wanted: readonly KubeObject[],
): { apply: KubeObject[]; again: number } {
  const all = wanted.map((one) => {
    const { method = '', marked = [] } =
      groups.find((other) => other.apiVersion === one.apiVersion && other.kind === one.kind) ?? {}
    if (!method.endsWith('Recreate'))
      return { apply: withoutNull(method === 'RollingInPlace' ? withLastApplied(one) : one), again: 0 }
    const there = marked.find((other) => placeOf(other) === placeOf(one))
    const isOther = there !== undefined && there.metadata.deletionTimestamp === undefined && differs(there, one)
    const again = isOther ? calmSeconds(there, one, now) : 0
    return { apply: isOther && again === 0 ? [] : withoutNull(withLastApplied(one)), again }
  })
  return { apply: all.flatMap(({ apply }) => apply), again: soonest(...all.map(({ again }) => again)) }
}

const placeOf = ({ apiVersion, kind: of, metadata: { namespace = '', name } }: KubeObject): string =>
  `${apiVersion} ${of} ${namespace}/${name}`
