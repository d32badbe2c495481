import type { z } from 'zod'
import type { Effect, Performed, Refusal, RunLog } from '#contracts'
import type { Backoff, ReconcilerSpec, RelatedResource } from '#spec'
import type { Kind, ObservedBy } from './kinds.ts'
import type { ReconcileOutcome } from './outcome.ts'
import type { Resource } from './resource.ts'

/**
 * The input of one run, frozen. Decide on it alone: equal input must give an equal outcome.
 *
 * @example
 * import type { Run } from 'fairlead'
 * import type { Website } from './website.ts'
 * const titleOf = ({ object }: Pick<Run<typeof Website, never, never>, 'object'>) => object.metadata.name
 * titleOf.length // => 1
 */
export interface Run<For, Owns, Related, External = undefined> {
  object: ObservedBy<For>
  /** The objects of a declared kind that this reconciler has created for this very object, not an earlier one of its name. */
  owned: <K extends Owns>(kind: K) => ObservedBy<K>[]
  related: <K extends Related>(kind: K) => ObservedBy<K>[]
  /**
   * Objects of a declared kind that could not be written in this run as the function returned them. Empty in the first
   * call of each run: it is called again when a write was refused. Of the kind that it is for: its labels and annotations.
   */
  refused: (kind: For | Owns) => readonly Refusal[]
  /** What `external.read` returned for this decision, as JSON. Undefined in `read` and `perform` themselves. */
  external: External
  /** The last effect of this run, and its result or error. It explains; decide on `external`. */
  performed: Performed | undefined
  now: Date
  /**
   * 32 letters and digits that nobody can guess, for a Secret: others in each run, the same for one name within a run.
   * Draw one only where none is stored yet.
   */
  secret: (name: string) => string
  /** Failed runs of this object since the last success. */
  attempt: number
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
 * import { ConfigMap, type RelatedKind } from 'fairlead'
 * const Source = { ...ConfigMap, byName: 'spec.from' } as const satisfies RelatedKind
 * Source.byName // => 'spec.from'
 */
export type RelatedKind = Kind<unknown> &
  Readonly<
    Partial<
      Pick<RelatedResource, 'selector' | 'fieldSelector' | 'byName' | 'namespacePath' | 'within' | 'metadataOnly'>
    >
  >

/**
 * Returns what should be so; nothing: all is as it should be. Conditional, so that the compiler knows the status of
 * `For` when it reads the function, and `phase: 'DONE'` stays that literal.
 */
type Reconcile<For, Owns, Related, External, Change> = (
  run: Run<For, Owns, Related, External>,
) => Answer<OutcomeOf<For, Change>>

type OutcomeOf<For, Change> =
  unknown extends ObservedBy<For>
    ? ReconcileOutcome<Literals, EffectOf<Change>>
    : For extends Resource<infer _Spec, infer Status>
      ? ReconcileOutcome<z.input<Status>, EffectOf<Change>>
      : Omit<ReconcileOutcome<never, EffectOf<Change>>, 'status' | 'conditions'>

/** Conditional for the same reason: `kind: 'addUser'` stays that literal. */
type EffectOf<Change> = unknown extends Change ? Literals : Change

/**
 * A system outside of Kubernetes that a function manages. `read` and `perform` receive the input of `reconcile` and run
 * in the same process; only they may hold clients.
 *
 * @example
 * import type { ExternalSystem } from 'fairlead'
 * type Change = { kind: 'add'; name: string }
 * const users = new Set<string>()
 * const directory: ExternalSystem<unknown, string[], Change> = {
 *   read: () => [...users].sort(),
 *   perform: ({ name }) => void users.add(name),
 *   timeoutSeconds: 10,
 * }
 * directory.read({}) // => []
 */
export interface ExternalSystem<Run, State, Change> {
  /**
   * What is there now, as plain JSON of 1 MiB at most. Called once for each observation, before `reconcile`. What does not
   * answer is a value too: an error thrown here ends the run, and it is tried again with backoff.
   */
  read: (run: Run) => State | Promise<State>
  /**
   * Makes the change that `reconcile` returned as `effect`; what it returns is told to the next decision. It may be called
   * again for a change that was made already, and late. Stop when `run.signal` is aborted.
   */
  perform: (effect: Change, run: Run) => unknown
  /** Of one call. Left out: as the reconciler's. */
  timeoutSeconds?: number
  /** Calls of both together, per dispatcher process. `burst` (1): calls at once after a time without calls. */
  rateLimit?: { perSecond: number; burst?: number }
}

type Answer<Outcome> = Outcome | undefined | Promise<Outcome | undefined>

/**
 * A function without parameters is read before `For` is known, and is not read again. These types make the compiler keep
 * the literals in it until it compares them with the status.
 */
type Literal = Uppercase<string> | 0 | false | Literals | readonly Literal[]
interface Literals {
  [field: string]: Literal
}

/**
 * The options of `reconciler()`. A left-out option has the default that docs/functions.md lists.
 *
 * @example
 * import type { ReconcilerOptions } from 'fairlead'
 * import { Website } from './website.ts'
 * const options: ReconcilerOptions<typeof Website, never, never> = {
 *   name: 'website',
 *   for: Website,
 *   reconcile: ({ object }) => ({ status: { ready: object.spec.replicas } }),
 * }
 * options.name // => 'website'
 */
export interface ReconcilerOptions<
  For,
  Owns extends Kind<unknown>,
  Related extends RelatedKind,
  External = undefined,
  Change extends { kind: string } = Effect,
> {
  /** A DNS label; the name of the Reconciler resource. */
  name: string
  /** After a rename: the former name, whose objects and finalizers stay the function's. Left out: `name`. */
  identity?: string
  /** A resource(), whose status is the function's to say; or a kind that is there anyway, whose status stays untouched. */
  for: For
  /** Label selector; only objects that match are reconciled. */
  selector?: string
  /** Only these namespaces; left out: all. */
  namespaces?: string[]
  owns?: readonly Owns[]
  related?: readonly Related[]
  /** An update of the object counts only if one of these has changed; left out: every update counts. */
  changes?: ReconcilerSpec['changes']
  /** What else of its object it may write. Metadata: labels and annotations. Deletion: it may delete it. */
  writes?: ReconcilerSpec['writes']
  /** Roles that bindings of it name: its account may bind these, though it does not have their rights. */
  binds?: ReconcilerSpec['binds']
  /** Every object runs again about so often, even if nothing has changed. */
  resyncSeconds?: number
  /** What the function manages outside of Kubernetes. Before `reconcile` in the literal, so that its types are known there. */
  external?: ExternalSystem<Run<For, Owns, Related>, External, Change>
  reconcile: Reconcile<For, Owns, Related, NoInfer<External>, Change>
  /**
   * Runs instead of `reconcile` while the object is being deleted, and holds it back: until it returns without asking
   * for another run and nothing of what it returned is left to write. What the object owns goes after it, by garbage
   * collection. An object that the selector matches no longer is let go without it.
   */
  finalize?: Reconcile<For, Owns, Related, NoInfer<External>, Change>
  /** Keys held at once per dispatcher process. */
  concurrency?: number
  timeoutSeconds?: number
  backoff?: Partial<Backoff>
  /** Whose rights its writes have. Left out: an account of its own, `fairlead-NAME` in fairlead-system. */
  serviceAccount?: ReconcilerSpec['serviceAccount']
}

export type AnyRun = Run<Kind<unknown>, Kind<unknown>, RelatedKind, never>

/**
 * The external system of any reconciler, without the types of its own. `reconciler().external` has this type.
 *
 * @example
 * import type { External } from 'fairlead'
 * const none: External = { read: () => null, perform: () => undefined, rateLimit: { perSecond: 5 } }
 * none.rateLimit?.perSecond // => 5
 */
export interface External extends Pick<ExternalSystem<AnyRun, unknown, Effect>, 'timeoutSeconds' | 'rateLimit'> {
  read(run: AnyRun): unknown
  perform(effect: Effect, run: AnyRun): unknown
}

/**
 * A function with its declaration: all that bridge and dispatcher need to know. `reconciler()` makes it, frozen.
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
  readonly changes?: ReconcilerSpec['changes']
  readonly writes?: ReconcilerSpec['writes']
  readonly binds?: ReconcilerSpec['binds']
  readonly resyncSeconds?: number
  readonly external?: External
  reconcile(run: AnyRun): unknown
  finalize?(run: AnyRun): unknown
  readonly concurrency?: number
  readonly timeoutSeconds?: number
  readonly backoff?: Partial<Backoff>
  readonly serviceAccount?: ReconcilerSpec['serviceAccount']
}
