import type { z } from 'zod'
import type { ClusterInfo, Effect, KeptStatus, KubeObject, Performed, Refusal, ResourceRef, RunLog } from '#contracts'
import type { Backoff, ReconcilerSpec, RelatedResource } from '#spec'
import type { ExternalSystem } from './external-system.ts'
import type { ActedKind, Kind, ObservedBy } from './kinds.ts'
import type { ReconcileOutcome } from './outcome.ts'
import type { Resource } from './resource.ts'

/**
 * The input of one run, frozen. Decide on it alone: equal input must give an equal outcome.
 *
 * @example
 * import type { Run } from 'fairlead'
 * import { Website } from './website.ts'
 * import { outcomeOf } from 'fairlead/testing'
 * import { reconciler } from 'fairlead'
 * const readyOf = ({ object }: Run<typeof Website, never, never>) => object.spec.replicas
 * const site = reconciler({ name: 'site', for: Website, reconcile: (run) => ({ status: { ready: readyOf(run) } }) })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi', replicas: 2 } })
 * const { status } = await outcomeOf(site, { object })
 * status // => { ready: 2 }
 */
export interface Run<For, Owns, Related, External = undefined> {
  /** The object, checked by its schema, with defaults. Each field of its status may be missing: a new object has none. */
  object: ObservedBy<For>
  /**
   * The objects of a declared kind that this reconciler has created for this object. Objects of an earlier object with
   * the same name are left out, since its UID differs.
   */
  owned: <K extends Owns>(kind: K) => ObservedBy<K>[]
  /** The objects that the declaration in `related` selects for this object. Pass the same value here. */
  related: <K extends Related>(kind: K) => ObservedBy<K>[]
  /**
   * Objects of a declared kind that the API server or another owner refused in this run. Empty in the first call of
   * each run; after a refused write the function is called again. For the reconciled kind: its labels and annotations. For
   * each of these kinds: acts that are refused or wait. An act that waits is there in the first call too.
   */
  refused: (kind: For | Owns | Related) => readonly Refusal[]
  /** What `external.read` returned for this decision, as JSON. Undefined in `read` and `perform` themselves. */
  external: External
  /** The last effect of this run, and its result or error. It is for messages; decide on `external`. */
  performed: Performed | undefined
  /** The cluster of the object. Its name is empty unless `fairlead up --clusters` serves several. */
  cluster: ClusterInfo
  /** The current time. Use no other clock: tests and replays set it. */
  now: Date
  /**
   * Returns 32 random letters and digits for a Secret. The text differs between runs, and is the same for one name
   * within a run. Call it only if no Secret is stored yet.
   */
  secret: (name: string) => string
  /** Failed runs of this object since the last success. */
  attempt: number
  /** Writes lines with the reconciler, the key and the trace ID: `log.info({ size }, 'grows')`. */
  log: RunLog
  /** Aborted at the time-out of the run, when another run has taken over, or at shutdown. */
  signal: AbortSignal
}

/**
 * A kind whose objects a function reads without owning them: those in the namespace of the object, or in the namespaces
 * that `namespacePath` names, narrowed by selectors and by `byName`. A change of such an object runs the objects that
 * it is related to.
 *
 * @example
 * import { ConfigMap, type RelatedKind, reconciler } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const Source = { ...ConfigMap, byName: 'spec.html' } as const satisfies RelatedKind
 * const reader = reconciler({
 *   name: 'reader', for: Website, related: [Source],
 *   reconcile: ({ related }) => ({ status: { ready: related(Source).length } }),
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const others = ['hi', 'other'].map((name) => ConfigMap.of({ metadata: { name, namespace: 'default' } }))
 * await outcomeOf(reader, { object, others }) // => { status: { ready: 1 } }
 */
export interface RelatedKind extends Kind<unknown> {
  /**
   * The path, in the object, of the field with the name or the names: `spec.volumes[*].configMap.name`.
   *
   * @default any name
   */
  readonly byName?: RelatedResource['byName']
  /**
   * The path, in the object, of the object or the objects that name kinds: `spec.target`. This kind then counts for objects
   * that name it there, and is watched while one does. Needs `byName`. `namedKind()` declares kinds that nobody knows yet.
   *
   * @default the kind counts for all objects
   */
  readonly kindPath?: RelatedResource['kindPath']
  /**
   * Only objects that name the object in an owner reference, whether it is their controller or not. A change runs all
   * owners that it has and had. Not with `byName`, `namespacePath` or `within: 'Cluster'`.
   *
   * @default false
   */
  readonly byOwner?: RelatedResource['byOwner']
  /**
   * The path, in objects of this kind, of the field with the name or the names of your object: `spec.nodeName`,
   * `spec.parentRefs[*].name`. Only objects that name it are given, and a change runs all that the changed one names and
   * named before. With `byName`, the name is that in the field of your object. Not with `byOwner`, `namespacePath`, `kindPath`,
   * `metadataOnly` or `within: 'Cluster'`.
   *
   * @default any object
   */
  readonly naming?: RelatedResource['naming']
  /**
   * A label selector as text.
   *
   * @default all objects
   */
  readonly selector?: RelatedResource['selector']
  /**
   * A field selector that the API server has for the kind: `'status.phase=Running'`.
   *
   * @default all objects
   */
  readonly fieldSelector?: RelatedResource['fieldSelector']
  /**
   * Cluster: objects in all namespaces. Namespace: those in the namespace of the object, and cluster-scoped ones.
   *
   * @default 'Namespace'
   */
  readonly within?: RelatedResource['within']
  /**
   * The path, in the object, of the field with the namespace or the namespaces: `status.namespace`. Not with `within`.
   *
   * @default as in `within`
   */
  readonly namespacePath?: RelatedResource['namespacePath']
  /**
   * Only `metadata` is watched, unless another declaration needs more.
   *
   * @default false
   */
  readonly metadataOnly?: RelatedResource['metadataOnly']
}

/**
 * A kind of others of which a function sets fields: those that it returns in `patch`.
 *
 * @example
 * import { fieldsOf, Node, type PatchedKind, reconciler } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const Cordoned: PatchedKind = { ...Node, within: 'Cluster' }
 * const cordon = reconciler({
 *   name: 'cordon', for: Website, patches: [Cordoned],
 *   reconcile: ({ object }) => ({ patch: [fieldsOf(Node, { metadata: { name: object.spec.html }, spec: { unschedulable: true } })] }),
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'node-1' } })
 * const { patch } = await outcomeOf(cordon, { object })
 * patch?.[0]?.spec // => { unschedulable: true }
 */
export interface PatchedKind extends Kind<unknown> {
  /**
   * The function sets fields of the subresource `status`. To set both, declare the kind twice.
   *
   * @default all fields but these
   */
  readonly status?: true
  /**
   * Single values that are taken from other managers too: `['spec.replicas']`. The value of before returns when they are
   * given back.
   *
   * @default a field that another manager has set to another value is refused
   */
  readonly takes?: readonly string[]
  /**
   * Cluster: objects in all namespaces. Namespace: those in the namespace of the object, and cluster-scoped ones.
   *
   * @default 'Namespace'
   */
  readonly within?: RelatedResource['within']
}

/**
 * Returns the desired state; returning nothing keeps everything as it is. The type is conditional, so that the compiler
 * knows the status of `For` when it reads the function, and `phase: 'DONE'` stays that literal.
 */
type Reconcile<For, Owns, Related, External, Change> = (
  run: Run<For, Owns, Related, External>,
) => Answer<OutcomeOf<For, Change>>

type OutcomeOf<For, Change> =
  unknown extends ObservedBy<For>
    ? ReconcileOutcome<Literals, EffectOf<Change>>
    : For extends Resource<infer _Spec, infer Status>
      ? ReconcileOutcome<Fields<z.input<Status> & KeptStatus>, EffectOf<Change>>
      : Omit<ReconcileOutcome<never, EffectOf<Change>>, 'status' | 'conditions'>

/**
 * A metric that a function may change. A counter grows; a gauge has the value that a run of the process has reported last.
 *
 * @example
 * import type { MetricDeclaration } from 'fairlead'
 * const builds: MetricDeclaration = { name: 'builds_total', type: 'Counter', help: 'Builds that have ended' }
 * builds.name // => 'builds_total'
 */
export interface MetricDeclaration {
  /** Lower-case letters, digits and _, 63 characters at most. That of a counter ends with `_total`, and no other. */
  name: string
  type: 'Counter' | 'Gauge'
  /** 200 characters at most. */
  help: string
  /**
   * Two at most, each with 16 values at most. A value that is not declared counts as `other`. Names that Fairlead or
   * Prometheus adds are refused: controller, namespace, pod, container, service, job, instance, endpoint.
   *
   * @default []
   */
  labels?: readonly { name: string; values: readonly string[] }[]
}

/** One type of all fields, so that the compiler names a wrong one in one line. */
type Fields<T> = { [Field in keyof T]: T[Field] }

/** Conditional for the same reason: `kind: 'addUser'` stays that literal. */
type EffectOf<Change> = unknown extends Change ? Literals : Change

/**
 * The input of `read` and `perform`: that of `reconcile`, with the configuration of the function.
 *
 * @example
 * import type { ExternalRun } from 'fairlead'
 * import type { Website } from './website.ts'
 * type Configured = Pick<ExternalRun<typeof Website, never, never>, 'config'>
 * const headersOf = ({ config }: Configured) => ({ authorization: `Bearer ${config('token')}` })
 * headersOf({ config: (name) => `the ${name}` }) // => { authorization: 'Bearer the token' }
 */
export interface ExternalRun<For, Owns, Related> extends Run<For, Owns, Related> {
  /** Returns a value that `config` of the external system declares. Do not keep it: the next call may have another one. */
  config: (name: string) => string
}

type Answer<Outcome> = Outcome | undefined | Promise<Outcome | undefined>

/**
 * The compiler reads a function without parameters before it knows `For`, and does not read it again. These types make
 * the compiler keep the literals in it until it compares them with the status.
 */
type Literal = Uppercase<string> | 0 | false | Literals | readonly Literal[]
interface Literals {
  [field: string]: Literal
}

/**
 * The options of `reconciler()`. `name`, `for` and `reconcile` are required.
 *
 * @example
 * import { manifest, type ReconcilerOptions, reconciler } from 'fairlead'
 * import { Website } from './website.ts'
 * const options: ReconcilerOptions<typeof Website, never, never> = {
 *   name: 'website',
 *   for: Website,
 *   reconcile: ({ object }) => ({ status: { ready: object.spec.replicas } }),
 * }
 * manifest(reconciler(options)).spec.concurrency // => 256
 */
export interface ReconcilerOptions<
  For,
  Owns extends Kind<unknown>,
  Related extends RelatedKind,
  External = undefined,
  Change extends { kind: string } = Effect,
> {
  /** The name of the Reconciler resource, unique in the cluster: a-z, 0-9 and -, 63 characters at most. */
  name: string
  /**
   * The former name of a renamed reconciler, which keeps its objects and finalizers.
   *
   * @default the name
   */
  identity?: string
  /**
   * A resource(), whose status the function writes; or a kind that exists without it, whose status the function does
   * not write.
   */
  for: For
  /**
   * A label selector as text: `'tier in (a, b), !legacy'`. Only objects that match are reconciled.
   *
   * @default all objects
   */
  selector?: string
  /**
   * Only objects in these namespaces are reconciled, 1,000 at most. Its permissions are for these namespaces alone.
   *
   * @default all namespaces
   */
  namespaces?: string[]
  /**
   * Kinds that the function creates, 64 at most: `[ConfigMap, Deployment]`. A change of an owned object runs its owner.
   *
   * @default []
   */
  owns?: readonly Owns[]
  /**
   * Kinds that the function reads without owning them, 64 at most: `[{ ...Secret, byName: 'spec.secretName' } as const]`.
   * A change runs the objects that the changed one is related to.
   *
   * @default []
   */
  related?: readonly Related[]
  /**
   * Where a CloudEvent of another system names the object that it runs: `{ name: 'subject', namespace: 'data.shop' }`.
   * Without `namespace`, the object has none. A program that knows the object needs no declaration.
   *
   * @default no CloudEvents
   */
  trigger?: ReconcilerSpec['trigger']
  /**
   * Metrics that an outcome may change, 16 at most, each with two labels at most and 16 values of each. `/metrics` of the
   * dispatcher shows them as `fairlead_function_NAME`, with the label `controller`.
   *
   * @default none
   */
  metrics?: readonly MetricDeclaration[]
  /**
   * Kinds of others of which the function sets fields by `patch`, 64 at most: `[Node, { ...Issuer, status: true } as const]`.
   * The object then has a finalizer: when it is deleted, the fields are given back. A change of a patched object runs the
   * object.
   *
   * @default []
   */
  patches?: readonly PatchedKind[]
  /**
   * The acts that the function may return in `act`, 64 at most: `[{ ...Pod, act: 'Evict' }]`.
   *
   * @default []
   */
  acts?: readonly ActedKind[]
  /**
   * An update of the object starts a run only if one of these has changed: `['Generation']` for changes of the spec.
   *
   * @default every update starts a run
   */
  changes?: ReconcilerSpec['changes']
  /**
   * What the function may write of its object beside the status. Metadata: labels and annotations. Deletion: it may
   * delete the object.
   *
   * @default the status alone
   */
  writes?: ReconcilerSpec['writes']
  /**
   * Roles that its bindings refer to, 64 at most. Its service account may bind them, though it does not have their
   * permissions.
   *
   * @default []
   */
  binds?: ReconcilerSpec['binds']
  /**
   * Every object runs again after about this many seconds (±10 %), even if nothing has changed: 1 to 31,536,000.
   *
   * @default never
   */
  resyncSeconds?: number
  /**
   * The system outside of Kubernetes. It stands before `reconcile` in the literal, so that its types are known there.
   */
  external?: ExternalSystem<ExternalRun<For, Owns, Related>, External, Change>
  /**
   * Returns what should exist: from the object and what it owns to the outcome. It may be async. It is called after each
   * change, and again after its own writes, until nothing is left to write.
   */
  reconcile: Reconcile<For, Owns, Related, NoInfer<External>, Change>
  /**
   * Runs instead of `reconcile` while the object is being deleted, and keeps its finalizer: until it returns without a
   * request for another run, and everything that it returned is written. The garbage collector then deletes the owned
   * objects. An object that no longer matches the selector loses the finalizer without this call.
   */
  finalize?: Reconcile<For, Owns, Related, NoInfer<External>, Change>
  /**
   * Finalizers of operators that the function replaces, 16 at most: `['cache.example.com/finalizer']`. While an object is
   * being deleted, they count as the finalizer of the function, and are removed together with it. Until then they stay.
   * Keep the list as long as objects have them.
   *
   * @default []
   */
  formerFinalizers?: ReconcilerSpec['formerFinalizers']
  /**
   * Objects that one dispatcher process reconciles at the same time, 1 to 10,000. Each further process adds as many.
   *
   * @default 256
   */
  concurrency?: number
  /**
   * The runs that all dispatcher processes together begin: in any W seconds, `perSecond × W + burst` at most. Further
   * objects wait in the queue, those that have changed first. `perSecond` is 0.001 to 1,000. `burst` is the runs at once
   * after a time without runs, by default those of a second, at least 2.
   *
   * @default no limit
   */
  runRate?: ReconcilerSpec['runRate']
  /**
   * The time-out of one call of the function, in seconds: 1 to 3,600. Then `signal` is aborted, and the run fails.
   *
   * @default 60
   */
  timeoutSeconds?: number
  /**
   * The pause after a failed run, in seconds, doubled with each further failure in a row. `jitter` is the share by which
   * it is lengthened or shortened at random.
   *
   * @default { initialSeconds: 0.25, maxSeconds: 1000, jitter: 0.1 }
   */
  backoff?: Partial<Backoff>
  /**
   * The service account whose permissions its writes have.
   *
   * @default fairlead-NAME in fairlead-system
   */
  serviceAccount?: ReconcilerSpec['serviceAccount']
}

export type AnyRun = Run<Kind<unknown>, Kind<unknown>, RelatedKind, never>
type AnyExternalRun = ExternalRun<Kind<unknown>, Kind<unknown>, RelatedKind>

/**
 * The external system of any reconciler, without its own types. `reconciler().external` has this type.
 *
 * @example
 * import type { External } from 'fairlead'
 * const none: External = { read: () => null, perform: () => undefined, rateLimit: { perSecond: 5 } }
 * none.rateLimit?.perSecond // => 5
 */
export interface External
  extends Pick<ExternalSystem<AnyExternalRun, unknown, Effect>, 'config' | 'timeoutSeconds' | 'rateLimit'> {
  read(run: AnyExternalRun): unknown
  perform?(effect: Effect, run: AnyExternalRun): unknown
}

/**
 * A function with its declaration: the information that the bridge and the dispatcher need. `reconciler()` makes it,
 * frozen.
 *
 * @example
 * import type { Reconciler } from 'fairlead'
 * import { website } from './website.ts'
 * const kindsOf = ({ owns }: Reconciler) => owns.map(({ kind }) => kind)
 * kindsOf(website) // => ['ConfigMap', 'Deployment', 'Service']
 */
export interface Reconciler<For extends Kind<unknown> = Kind<unknown>> {
  readonly name: string
  readonly identity?: string
  readonly for: For
  readonly selector?: string
  readonly namespaces?: string[]
  readonly owns: readonly Kind<unknown>[]
  readonly related: readonly RelatedKind[]
  readonly trigger?: ReconcilerSpec['trigger']
  readonly metrics?: readonly MetricDeclaration[]
  readonly patches?: readonly PatchedKind[]
  readonly acts?: readonly ActedKind[]
  readonly changes?: ReconcilerSpec['changes']
  readonly writes?: ReconcilerSpec['writes']
  readonly binds?: ReconcilerSpec['binds']
  readonly resyncSeconds?: number
  readonly external?: External
  reconcile(run: AnyRun): unknown
  finalize?(run: AnyRun): unknown
  readonly formerFinalizers?: ReconcilerSpec['formerFinalizers']
  readonly concurrency?: number
  readonly runRate?: ReconcilerSpec['runRate']
  readonly timeoutSeconds?: number
  readonly backoff?: Partial<Backoff>
  readonly serviceAccount?: ReconcilerSpec['serviceAccount']
  /** The function writes the status of a kind that is no `resource()`: nobody else does. */
  readonly keepsStatus?: true
  /** It also serves functions that objects of this kind declare. */
  readonly adapts?: Kind<unknown> & {
    /** The resources that the object names, whose kinds `declare` needs. */
    resources: (object: KubeObject) => readonly ResourceRef[]
    declare: (object: KubeObject, served: readonly ServedKind[]) => readonly Reconciler[]
    /** Whether what has served the object until now has made this one for it. */
    made: (child: KubeObject, object: KubeObject) => boolean
  }
  /** What has served the objects before has recorded what it has made for each, in Secrets with labels. */
  readonly succeeds?: {
    recordsOf: (owner: KubeObject) => string
    made: (records: readonly KubeObject[]) => readonly Pick<KubeObject, 'apiVersion' | 'kind' | 'metadata'>[]
    /** Whether fields in the form of managedFields are those that it has written. */
    wrote: (fields: object) => boolean
  }
  /** It is declared by an object: the name of the function that serves it, and what that declares it from. */
  readonly declaredBy?: {
    function: string
    /** `part`: which of the functions that the object declares it is. */
    with: { object: KubeObject; kinds: readonly ServedKind[]; part: number }
  }
}

/** A kind as the API server serves it. */
interface ServedKind extends ResourceRef {
  kind: string
  /** Whether its objects have the subresource `status`. */
  hasStatus?: boolean | undefined
}
