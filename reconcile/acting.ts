import { knownAfter, type PlannedAct, refusalOfSigner } from './acts.ts'
import { gravest, RefusedError } from './errors.ts'
import { type Asking, ask, FailedPass, noteNoOp, type Pass } from './progress.ts'
import { addRefused, type RefusedWrite, refusedAct, waitingAct } from './refusals.ts'
import type { Failed } from './vocabulary.ts'

/**
 * Sends acts, and takes their results into the pass: the others are sent, too, if one is refused or waits. One of a signer
 * that is not declared is refused before. Fails the pass if the API server failed. `isOnPrimary`: one was performed on the primary, whose observation is outdated.
 */
export function* sendActs(
  pass: Pass,
  planned: readonly PlannedAct[],
): Asking<{ refused: RefusedWrite[]; isWaiting: boolean; isOnPrimary: boolean }> {
  const refused: RefusedWrite[] = planned.flatMap((act) => {
    const message = refusalOfSigner(act)
    return message === undefined ? [] : [refusedAct(act, new RefusedError(message, { reason: 'Forbidden' }))]
  })
  const acts = planned.filter((act) => refusalOfSigner(act) === undefined)
  const { results } = acts.length === 0 ? { results: [] } : yield* ask({ do: 'act', acts, object: pass.world.object })
  const waiting: RefusedWrite[] = []
  const failures: Failed[] = []
  let isOnPrimary = false
  for (const [index, act] of acts.entries()) {
    const result = results[index]
    if (result === undefined) continue
    if (!('failed' in result)) {
      const { target, value } = knownAfter(act, result, pass.now)
      noteNoOp(pass, target, value)
      isOnPrimary ||= result.waits === undefined && act.object.metadata.uid === pass.world.object.metadata.uid
      if (result.waits !== undefined) waiting.push(waitingAct(act.object, result.waits))
    } else if (result.failed instanceof RefusedError) refused.push(refusedAct(act, result.failed))
    else failures.push(result)
  }
  pass.refused = addRefused(pass.refused, waiting)
  if (failures.length > 0) throw new FailedPass(gravest(failures))
  return { refused, isWaiting: waiting.length > 0, isOnPrimary }
}
