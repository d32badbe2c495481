import { type Effect, type RunInput, TerminalError } from '#contracts'
import { BoundedMap } from '#primitives/bounded-map'
import { type Due, dueDate } from '#queue/terms'
import { finalizersWithout } from '#spec'
import { type Settled, sameJson } from './compare.ts'
import { contentsReturned, noting } from './confidential.ts'
import { UnsettledError } from './errors.ts'
import { goesOnLater, perform, read, stateIn } from './external.ts'
import { fail, refusalOf } from './failure.ts'
import { deepFreeze, inputOf, isFinalizing } from './input.ts'
import { type MetadataWrite, metadataTarget } from './metadata.ts'
import { type PlainOutcome, parseOutcome } from './outcome.ts'
import { type Plan, plan, plannedStatus, statusTarget, type Write } from './plan.ts'
import { after, finish, isLastPass, MAX_ROUNDS, type Pass, type Step, step, tell } from './progress.ts'
import { type FeasiblePlan, notingRefused, withoutRefused } from './refusals.ts'
import type { StatusPatch } from './status.ts'
import type { Family } from './world.ts'

/** Calls the function. If its last call in this run saw the same state, uses that outcome and the time of that call. */
export function call(pass: Pass): Step {
  const { called, external, of } = pass
  if (pass.excess !== undefined) return fail(pass, { failed: pass.excess })
  if (of.spec.external !== undefined && external === undefined) return read(pass)
  const input: RunInput = { ...inputOf(pass), ...(external && { external: external.state }) }
  if (called !== undefined) {
    const { now, seed = pass.seed } = called.input
    if (sameJson(called.input, { ...input, now, seed }))
      return decide({ ...pass, now: new Date(now), seed }, called.outcome)
  }
  return step({ at: 'calling', pass, input }, { do: 'call', input: deepFreeze(input) })
}

/** Adds the state that was read to the observation. */
export function hasRead(pass: Pass, value: unknown): Step {
  let state: unknown
  try {
    state = stateIn(value)
  } catch (error) {
    return fail(pass, { failed: error })
  }
  return call({ ...pass, external: { state } })
}

/** Continues with the function's outcome. */
export function returned(pass: Pass, input: RunInput, value: unknown): Step {
  let outcome: PlainOutcome
  try {
    outcome = parseOutcome(value, pass.of.maxStateBytes)
  } catch (error) {
    return fail(noting(pass, contentsReturned(value)), { failed: error })
  }
  return decide({ ...noting(pass, outcome.apply ?? []), called: { input, outcome } }, outcome)
}

function decide(pass: Pass, outcome: PlainOutcome): Step {
  const { of, world, now, settled } = pass
  const { identity, isReferenceOnly: isConfidential } = of
  const wanted = plan(of.spec, world, outcome, { identity, now, settled, isConfidential })
  if (wanted.findings.length > 0)
    return fail(pass, { failed: new TerminalError(wanted.findings.join('; '), { reason: 'InvalidOutcome' }) })
  const feasible = withoutRefused(wanted, pass.refused)
  const round = standing({ ...pass, rounds: pass.rounds + 1 }, feasible)
  const { object } = world
  const refusal = refusalOf(round)
  const next =
    refusal === undefined
      ? feasible
      : { ...feasible, status: plannedStatus(of.spec, world, outcome, { identity, now, settled }, refusal) }
  const write = nextWrite(next)
  switch (write?.kind) {
    case undefined:
      return conclude(round, next)
    case 'owned':
      return writeStage(round, next, 0)
    case 'metadata':
      return step(
        { at: 'writingMetadata', pass: round, plan: next },
        { do: 'writeMetadata', object, write: write.write },
      )
    case 'status': {
      const ask = { do: 'writeStatus' as const, object, patch: write.patch, mayBeDropped: !isLastPass(pass) }
      return step({ at: 'writingStatus', pass: round, plan: next }, ask)
    }
    case 'effect':
      return perform(round, next, write.effect)
    case 'deletion':
      return step({ at: 'deleting', pass: round, plan: next }, { do: 'delete', object })
  }
}

/** Returns the pass with the refused writes that its outcome requires. */
export const standing = (pass: Pass, { standing }: FeasiblePlan): Pass => ({
  ...pass,
  refused: notingRefused(pass.refused, standing),
  standing,
})

/** Writes the next stage of the plan. Stages are written one after the other. */
export function writeStage(pass: Pass, next: FeasiblePlan, from: number): Step {
  const stage = next.stages.findIndex((writes, index) => index >= from && writes.length > 0)
  const writes = next.stages[stage]
  if (writes === undefined) return endRound(pass, next)
  return step({ at: 'writing', pass, plan: next, stage }, { do: 'write', writes })
}

/** Ends the round after all writes of one decision. The function decides on the result. */
export function endRound(pass: Pass, next: FeasiblePlan): Step {
  const [told, notes] = tell(pass, pass.world.object, next.events)
  if (pass.rounds < MAX_ROUNDS) return after(notes, call(told))
  return after(notes, goesOnLater(told) ?? fail(told, { failed: new UnsettledError(MAX_ROUNDS, next) }))
}

/**
 * Finishes a run that has nothing left to write. Releases the finalizer of an object that is being deleted. Fails the
 * run if a write of its last outcome was refused.
 */
function conclude(pass: Pass, { events, requeue: asked, lookAt, standing }: FeasiblePlan): Step {
  const [told, notes] = tell(pass, pass.world.object, events)
  if (standing.length > 0) return after(notes, fail(told))
  const { object } = pass.world
  const requeue = sooner(asked, lookAt, pass.now)
  if (requeue !== undefined)
    return after(notes, finish(told, { kind: 'requeue', at: requeue }, { mayLookAgain: !isLastPass(told) }))
  const { identity } = pass.of
  if (!isFinalizing(object, identity)) return after(notes, done(told))
  const finalizers = finalizersWithout(object.metadata, identity)
  return step({ at: 'releasing', pass: told }, { do: 'writeFinalizers', object, finalizers }, notes)
}

const sooner = (due: Due | undefined, other: Date | undefined, now: Date): Due | undefined =>
  due !== undefined && (other === undefined || dueDate(due, now) <= other) ? due : other

export const done = (pass: Pass): Step => finish(pass, { kind: 'done' }, { mayLookAgain: !isLastPass(pass) })

/** The writes between two decisions of a run. */
export type NextWrite =
  | { kind: 'owned'; stages: Write[][] }
  | { kind: 'metadata'; write: MetadataWrite }
  | { kind: 'status'; patch: StatusPatch }
  | { kind: 'effect'; effect: Effect }
  | { kind: 'deletion' }

/**
 * Returns the first writes that an outcome requires, in this order: owned objects, the labels and annotations of the
 * object, its status, its effect, and its deletion after all others. Undefined if nothing has to be written.
 */
export function nextWrite({ stages, metadata, status, effect, isDeletion }: Plan): NextWrite | undefined {
  if (stages.some((writes) => writes.length > 0)) return { kind: 'owned', stages }
  if (metadata !== undefined) return { kind: 'metadata', write: metadata }
  if (status !== undefined) return { kind: 'status', patch: status }
  if (effect !== undefined) return { kind: 'effect', effect }
  return isDeletion ? { kind: 'deletion' } : undefined
}

const CAPACITY = 20_000

/** Remembers the writes that changed nothing, for all runs of a process. */
export class SettledWrites {
  readonly #known = new BoundedMap<string, string>(CAPACITY)

  remember(target: string, value: string): void {
    this.#known.set(target, value)
  }

  /** Returns the known writes for one object and its owned objects. */
  of({ object, owned }: Family): Settled {
    const targets = [
      statusTarget(object),
      metadataTarget(object),
      ...owned.map((child) => child.object.metadata.uid ?? ''),
    ]
    return Object.fromEntries(
      targets.flatMap((target) => {
        const value = this.#known.get(target)
        return value === undefined ? [] : [[target, value]]
      }),
    )
  }
}
