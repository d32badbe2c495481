import type { RunInput } from '#contracts'
import type { Finish } from '#queue/terms'
import type { Pass, Progress } from './progress.ts'
import type { FeasiblePlan } from './refusals.ts'
import type { Ask, Note } from './vocabulary.ts'

/** What is asked for, what is to be told first, and where the run goes on with the answer. */
export interface Step {
  ask: Ask
  notes: readonly Note[]
  place: Place
}

export type Place =
  | { at: 'observing' | 'finishing'; run: Progress }
  | { at: 'sayingPaused' | 'addingFinalizer' | 'releasing' | 'reading'; pass: Pass }
  | { at: 'calling'; pass: Pass; input: RunInput }
  /** `stage`: the index of what is being written. */
  | { at: 'writing'; pass: Pass; plan: FeasiblePlan; stage: number }
  | {
      at: 'writingStatus' | 'writingMetadata' | 'performing' | 'deleting' | 'lookingAgain'
      pass: Pass
      plan: FeasiblePlan
    }
  /** A failure is being written on the object; then the run ends with `finish`, after `holdMs`. */
  | { at: 'reporting'; pass: Pass; finish: Finish; holdMs: number }
  | { at: 'holding'; run: Progress; finish: Finish }

export const step = (place: Place, ask: Ask, notes: readonly Note[] = []): Step => ({ place, ask, notes })

/** The same step, with something to be told before it. */
export const after = (notes: readonly Note[], next: Step): Step => ({ ...next, notes: [...notes, ...next.notes] })

/** Begins another pass: a fresh observation. */
export const observe = (run: Progress): Step =>
  step({ at: 'observing', run: { ...run, passes: run.passes + 1 } }, { do: 'observe', begins: true })

/** What was observed is not the newest any more. */
export const lookAgain = (pass: Pass, plan: FeasiblePlan): Step =>
  step({ at: 'lookingAgain', pass, plan }, { do: 'observe', begins: false })

/** Ends the run. `mayLookAgain`: changes that came meanwhile may begin another pass instead. */
export const finish = (run: Progress, how: Finish, { mayLookAgain }: { mayLookAgain: boolean }): Step =>
  step({ at: 'finishing', run }, { do: 'finish', finish: how, mayLookAgain })
