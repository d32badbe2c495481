import { ConflictError } from '#contracts'
import { backoffMs, type Finish } from '#queue/terms'
import { keepsStatus } from '#spec'
import { withheld } from './confidential.ts'
import { type Consequence, consequenceOf, GoneError, gravest, UnsettledError } from './errors.ts'
import { after, finish, isLastPass, observe, type Pass, type Progress, type Step, step, tell } from './progress.ts'
import { type Failure, failurePatch } from './status.ts'
import type { Failed, Note } from './vocabulary.ts'

/** The longest time for which a run that never settles keeps its key. */
const LONGEST_HELD_MS = 10_000

/** Continues a run after an error and the refusals before it. A run without a world has not observed its object. */
export function fail(run: Progress | Pass, given?: Failed): Step {
  const failure = gravest([...(given === undefined ? [] : [given]), ...refusalsIn(run)])
  const { failed: error } = failure
  const soon = whatItMeansFor(run, error)
  if (soon !== undefined) return soon
  const { finish: how, report: own, shown } = withheld(run, error, consequenceIn(run, failure))
  const refusal = refusalOf(run)
  const report = own ?? refusal
  const notes: Note[] = [{ note: 'failed', error, shown, finish: how }]
  const holdMs = error instanceof UnsettledError ? heldMs(run) : 0
  if (report === undefined || !isPass(run)) return after(notes, end(run, how, holdMs))
  const { object } = run.world
  const [pass, told] = tell(run, object, [{ type: 'Warning', ...report }])
  const isTerminal = how.kind === 'terminal'
  const patch = keepsStatus(pass.of.spec) ? failurePatch(object, report, pass.now, { refusal, isTerminal }) : undefined
  if (patch === undefined) return after([...notes, ...told], end(pass, how, holdMs))
  const ask = { do: 'writeStatus' as const, object, patch, mayBeDropped: false }
  return step({ at: 'reporting', pass, finish: how, holdMs }, ask, [...notes, ...told])
}

/** Returns the failure that the object shows for all refused writes of its outcome. */
export function refusalOf(run: Progress | Pass): Failure | undefined {
  const refusals = refusalsIn(run)
  if (refusals.length === 0) return undefined
  const failure = gravest(refusals)
  return withheld(run, failure.failed, consequenceIn(run, failure)).report
}

const refusalsIn = (run: Progress | Pass): Failed[] =>
  isPass(run) ? run.standing.map(({ error }) => ({ failed: error })) : []

/** Ends the run after the failure could not be written to the object. */
export function unreported(pass: Pass, failure: Failed): Step {
  const { failed: error } = failure
  const soon = whatItMeansFor(pass, error)
  if (soon !== undefined) return soon
  const { finish: how, shown } = withheld(pass, error, consequenceIn(pass, failure))
  return after([{ note: 'unreported', error, shown }], finish(pass, how, { mayLookAgain: false }))
}

/**
 * A run that never settles keeps its key for a while. The bridge does not recognise a write as the run's own if the
 * watch reports it after the run, or if bridge and dispatcher are different processes. It then runs the key at once, in
 * spite of the backoff.
 */
export function end(run: Progress, how: Finish, holdMs: number): Step {
  if (holdMs > 0) return step({ at: 'holding', run, finish: how }, { do: 'hold', ms: holdMs })
  return finish(run, how, { mayLookAgain: false })
}

function whatItMeansFor(run: Progress, error: unknown): Step | undefined {
  if (error instanceof GoneError) return finish(run, { kind: 'done' }, { mayLookAgain: false })
  return error instanceof ConflictError && !isLastPass(run) ? observe(run) : undefined
}

function consequenceIn({ attempt, random, of }: Progress, { failed, server }: Failed): Consequence {
  return consequenceOf(failed, { attempt, backoff: of.spec.backoff, random: () => random, server })
}

const heldMs = ({ attempt, random, of }: Progress): number =>
  Math.min(
    backoffMs(attempt, of.spec.backoff, () => random),
    LONGEST_HELD_MS,
  )

const isPass = (run: Progress | Pass): run is Pass => 'world' in run
