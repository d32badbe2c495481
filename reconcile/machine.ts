import { limited, performed, unreadable } from './external.ts'
import { end, fail, unreported } from './failure.ts'
import { begin, leave, lookedAgain } from './observed.ts'
import type { Progress, Reconciled } from './progress.ts'
import { observe, type Step } from './progress.ts'
import { endRound, hasRead, returned } from './rounds.ts'
import type { Answer, Ask } from './vocabulary.ts'
import {
  addedFinalizer,
  deleted,
  metadataRefused,
  released,
  wroteMetadata,
  wroteStage,
  wroteStatus,
} from './written.ts'

class UnexpectedAnswerError extends Error {
  override readonly name = 'UnexpectedAnswerError'
  constructor(ask: Ask, answer: Answer) {
    super(`the driver answered ${'did' in answer ? answer.did : 'a failure'} to ${ask.do}`)
  }
}

/**
 * Returns the first step of a run. `attempt`: the number of failed runs of the key since the last success. `random`: 0
 * ≤ x < 1.
 */
export function start(of: Reconciled, { attempt, random }: Pick<Progress, 'attempt' | 'random'>): Step {
  return observe({ of, attempt, random, passes: 0, told: [], confidential: [], performed: [] })
}

/**
 * Returns the step after an answer. Pure: no clock, no randomness, no input or output. A driver does what `ask`
 * requests, until it requests the finish. A driver that stops earlier, because it may not write any more, leaves the
 * run as a crash would.
 */
export function next({ place, ask }: Step, answer: Answer): Step {
  if ('failed' in answer) {
    if (place.at === 'reporting') return unreported(place.pass, answer)
    if (place.at === 'reading') return unreadable(place.pass, answer)
    if (place.at === 'performing' && ask.do === 'perform') return performed(place.pass, place.plan, ask, answer)
    if (place.at === 'writingMetadata' && ask.do === 'writeMetadata')
      return metadataRefused(place.pass, place.plan, ask.write, answer)
    return fail('pass' in place ? place.pass : place.run, answer)
  }
  switch (place.at) {
    case 'observing':
      if (answer.did === 'observe') return begin(place.run, answer.seen)
      break
    case 'sayingPaused':
      if (answer.did === 'writeStatus') return leave(place.pass)
      break
    case 'addingFinalizer':
      if (answer.did === 'writeFinalizers') return addedFinalizer(place.pass, answer.result)
      break
    case 'reading':
      if (answer.did === 'read') return hasRead(place.pass, answer.external)
      if (answer.did === 'limit') return limited(place.pass, answer.afterMs)
      break
    case 'calling':
      if (answer.did === 'call') return returned(place.pass, place.input, answer.returned)
      break
    case 'writing':
      if (answer.did === 'write') return wroteStage(place.pass, place.plan, place.stage, answer.results)
      break
    case 'writingStatus':
      if (answer.did === 'writeStatus' && ask.do === 'writeStatus')
        return wroteStatus(place.pass, place.plan, ask.patch, answer.result)
      break
    case 'writingMetadata':
      if (answer.did === 'writeMetadata' && ask.do === 'writeMetadata')
        return wroteMetadata(place.pass, place.plan, ask.write, answer.result)
      break
    case 'performing':
      if (ask.do === 'perform' && (answer.did === 'perform' || answer.did === 'skip'))
        return performed(place.pass, place.plan, ask, answer)
      break
    case 'deleting':
      if (answer.did === 'delete') return deleted(place.pass, place.plan, answer.result)
      break
    case 'lookingAgain': {
      if (answer.did !== 'observe') break
      const looked = lookedAgain(place.pass, answer.seen)
      return 'ask' in looked ? looked : endRound(looked, place.plan)
    }
    case 'releasing':
      if (answer.did === 'writeFinalizers') return released(place.pass, answer.result)
      break
    case 'reporting':
      if (answer.did === 'writeStatus') return end(place.pass, place.finish, place.holdMs)
      break
    case 'holding':
      if (answer.did === 'hold') return end(place.run, place.finish, 0)
      break
    case 'finishing':
      if (answer.did === 'finish') return observe(place.run)
      break
  }
  throw new UnexpectedAnswerError(ask, answer)
}
