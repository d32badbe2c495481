import type { RunInput } from '#contracts'
import type { Finish } from '#queue/terms'
import type { Pass, Progress } from './progress.ts'
import type { FeasiblePlan } from './refusals.ts'
import type { Ask, Note } from './vocabulary.ts'

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
