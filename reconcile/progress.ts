import type { EventReport, KubeObject, Performed, ResourceRef, RunInput } from '#contracts'
import { identityOf, type ReconcilerSpec, selectionOf } from '#spec'
import type { PlainOutcome } from './outcome.ts'
import type { RefusedWrite } from './refusals.ts'
import type { Contents } from './scrub.ts'
import type { Settled } from './settled.ts'
import type { Failed, Note } from './vocabulary.ts'
import type { World } from './world.ts'

/** Fresh observations in one run, after conflicts and changes that came meanwhile. */
const MAX_PASSES = 5
/** Decisions on their own results in one pass before the function counts as one that never settles. */
export const MAX_ROUNDS = 8

/** A Reconciler whose function is called. */
export interface Reconciled {
  name: string
  /** Of marks, finalizers and field managers. */
  identity: string
  spec: ReconcilerSpec
  /** Whether the object is in its namespaces and matches its selectors. */
  selects: (object: KubeObject) => boolean
  /** Only references to objects of that resource travel: their contents must not be told. */
  isReferenceOnly: (resource: ResourceRef) => boolean
}

/** Throws a SelectorError when the selectors of the specification cannot be read. */
export const reconciled = (
  name: string,
  spec: ReconcilerSpec,
  isReferenceOnly: Reconciled['isReferenceOnly'],
): Reconciled => ({ name, identity: identityOf(name, spec), spec, selects: selectionOf(spec.for), isReferenceOnly })

/** One run of one object. A value: nothing in it changes. */
export interface Progress {
  of: Reconciled
  /** Failed runs of the key since the last success. */
  attempt: number
  /** 0 ≤ x < 1, drawn for this run: spreads its backoff. */
  random: number
  /** Passes begun. */
  passes: number
  /** Events told in this run, as JSON. */
  told: readonly string[]
  /** Objects of kinds whose contents must not be told. */
  confidential: readonly Contents[]
  /** Effects of this run, in order: those that failed too. */
  performed: readonly PerformedEffect[]
  /** The last call and its outcome. */
  called?: { input: RunInput; outcome: PlainOutcome } | undefined
}

/** `failure`: what the run ends with if the function asks for the same effect again. */
export interface PerformedEffect extends Performed {
  failure?: Failed
}

/** From one fresh observation to the next. */
export interface Pass extends Progress {
  world: World
  now: Date
  seed: string
  settled: Settled
  excess?: Error | undefined
  /** What was read of the external system after the last observation. */
  external?: { state: unknown } | undefined
  /** Decisions so far. */
  rounds: number
  /** Writes of this pass that were refused: none is sent again, and the function is told of all. */
  refused: readonly RefusedWrite[]
  /** Those of them that the last outcome asks for. */
  standing: readonly RefusedWrite[]
}

export const isLastPass = ({ passes }: Progress): boolean => passes >= MAX_PASSES

/** An Event is told once in a run, however often it is decided. */
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
