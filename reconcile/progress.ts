import type { EventReport, KubeObject, Performed, ResourceRef, RunInput } from '#contracts'
import type { Finish } from '#queue/terms'
import { identityOf, type ReconcilerSpec, selectionOf } from '#spec'
import type { Settled } from './compare.ts'
import { MAX_STATE_BYTES, type PlainOutcome } from './outcome.ts'
import type { FeasiblePlan, RefusedWrite } from './refusals.ts'
import type { Contents } from './scrub.ts'
import type { Ask, Failed, Note } from './vocabulary.ts'
import type { World } from './world.ts'

/** The number of passes in one run. A conflict, or a change during the run, begins another pass. */
const MAX_PASSES = 5
/**
 * The number of decisions in one pass, each on the result of the one before, before the function counts as one that
 * never settles.
 */
export const MAX_ROUNDS = 8

/** A Reconciler whose function is called. */
export interface Reconciled {
  name: string
  /** The identity in marks, finalizers and field managers. */
  identity: string
  spec: ReconcilerSpec
  /** Whether the object is in the Reconciler's namespaces and matches its selectors. */
  selects: (object: KubeObject) => boolean
  /**
   * Whether only references to objects of the resource are stored in EVENTS. The contents of these objects are
   * confidential.
   */
  isReferenceOnly: (resource: ResourceRef) => boolean
  /** The limit of what a run reads, and of what the function returns, in bytes of JSON. */
  maxStateBytes: number
}

/** Throws a SelectorError if a selector of the specification is not valid. */
export const reconciled = (
  name: string,
  spec: ReconcilerSpec,
  isReferenceOnly: Reconciled['isReferenceOnly'],
  maxStateBytes = MAX_STATE_BYTES,
): Reconciled => ({
  name,
  identity: identityOf(name, spec),
  spec,
  selects: selectionOf(spec.for),
  isReferenceOnly,
  maxStateBytes,
})

/** One run of one object. The value is immutable. */
export interface Progress {
  of: Reconciled
  /** The number of failed runs of the key since the last success. */
  attempt: number
  /** A random number of this run, 0 ≤ x < 1. It spreads the backoff. */
  random: number
  /** The number of passes that have begun. */
  passes: number
  /** The Events reported in this run, as JSON. */
  told: readonly string[]
  /** The observed objects of confidential kinds. */
  confidential: readonly Contents[]
  /** The effects of this run in order, including those that failed. */
  performed: readonly PerformedEffect[]
  /** The last call and its outcome. */
  called?: { input: RunInput; outcome: PlainOutcome }
}

/** An effect of this run. The run ends with `failure` if the function asks for the same effect again. */
export interface PerformedEffect extends Performed {
  failure?: Failed
}

/** One pass of a run. It begins with an observation, and ends with the run or with the next pass. */
export interface Pass extends Progress {
  world: World
  now: Date
  seed: string
  settled: Settled
  excess?: Error
  /** The state of the external system after the last observation. */
  external?: { state: unknown }
  /** The number of decisions so far. */
  rounds: number
  /** The refused writes of this pass. None is sent again, and the function's input has all of them. */
  refused: readonly RefusedWrite[]
  /** The refused writes that the last outcome still requires. */
  standing: readonly RefusedWrite[]
}

export const isLastPass = ({ passes }: Progress): boolean => passes >= MAX_PASSES

/** Reports each Event once in a run, however often the function returns it. */
export function tell<P extends Progress>(run: P, object: KubeObject, events: readonly EventReport[]): [P, Note[]] {
  const told = [...run.told]
  const notes: Note[] = []
  for (const event of events) {
    const text = JSON.stringify(event)
    if (told.includes(text)) continue
    told.push(text)
    notes.push({ note: 'event', object, event })
  }
  return [{ ...run, told }, notes]
}

/**
 * One step of a run: the request to the driver, the notes to report before it, and the place at which the answer
 * continues the run.
 */
export interface Step {
  ask: Ask
  notes: readonly Note[]
  place: Place
}

export type Place =
  | { at: 'observing' | 'finishing'; run: Progress }
  | { at: 'sayingPaused' | 'addingFinalizer' | 'releasing' | 'reading'; pass: Pass }
  | { at: 'calling'; pass: Pass; input: RunInput }
  /** `stage`: the index of the stage that is being written. */
  | { at: 'writing'; pass: Pass; plan: FeasiblePlan; stage: number }
  | {
      at: 'writingStatus' | 'writingMetadata' | 'performing' | 'deleting' | 'lookingAgain'
      pass: Pass
      plan: FeasiblePlan
    }
  /** A failure is being written to the object. Then the run ends with `finish`, after `holdMs`. */
  | { at: 'reporting'; pass: Pass; finish: Finish; holdMs: number }
  | { at: 'holding'; run: Progress; finish: Finish }

export const step = (place: Place, ask: Ask, notes: readonly Note[] = []): Step => ({ place, ask, notes })

/** Returns the same step with more notes to report before it. */
export const after = (notes: readonly Note[], next: Step): Step => ({ ...next, notes: [...notes, ...next.notes] })

/** Begins another pass with an observation. */
export const observe = (run: Progress): Step =>
  step({ at: 'observing', run: { ...run, passes: run.passes + 1 } }, { do: 'observe', begins: true })

/** Observes again in the same pass, because the observation is outdated. */
export const lookAgain = (pass: Pass, plan: FeasiblePlan): Step =>
  step({ at: 'lookingAgain', pass, plan }, { do: 'observe', begins: false })

/** Ends the run. `mayLookAgain`: changes during the run may begin another pass instead. */
export const finish = (run: Progress, how: Finish, { mayLookAgain }: { mayLookAgain: boolean }): Step =>
  step({ at: 'finishing', run }, { do: 'finish', finish: how, mayLookAgain })
