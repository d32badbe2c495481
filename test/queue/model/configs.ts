import { finish } from '../../../streams/queue/finish.ts'
import { retry, withdraw } from '../../../streams/queue/intervene.ts'
import { passes } from '../../../streams/queue/leased-key.ts'
import { renew, take } from '../../../streams/queue/take.ts'
import { absorb, once, timerAgain, tokenAgain, tokenOf } from '../../../streams/queue/tokens.ts'
import type { Config, Subject } from './state.ts'

/**
 * The whole protocol: TAKE (with STEAL, DIRTY and ACK), ABSORB, RENEW, FINISH, and commands of users. ONCE stores a token
 * of a change, and the janitor's repairs.
 */
export const transitions = { once, take, absorb, renew, finish, retry, withdraw } as const

/** The messages that ONCE stores. */
export const messages = { tokenOf, tokenAgain, timerAgain } as const

export const PRODUCTION: Subject = {
  machines: transitions,
  messages,
  passes,
  requeuesFenced: true,
  beginsInTime: true,
  queuesRefused: true,
  cursorWaits: true,
  janitor: true,
}

/** Two workers, one replica, and a world in which nothing goes wrong except that tokens are delivered twice. */
export const CALM: Config = {
  workers: 2,
  replicas: 1,
  high: 1,
  low: 0,
  announces: 0,
  sightings: 0,
  wakes: 0,
  crashes: 0,
  faults: 0,
  expiries: 0,
  ends: 0,
  renews: 0,
  progresses: 0,
  lates: 0,
  slow: Number.POSITIVE_INFINITY,
  resurrections: 0,
  refusals: 0,
  mistakes: 0,
  interventions: 0,
  endings: [],
  byHand: [],
  delays: true,
  tokenLaps: false,
}

const STRICT = { ...CALM, oneRecord: true }
const BY_HAND = {
  retry: { byHand: ['retry'], interventions: 1 },
  park: { byHand: ['park'], interventions: 1 },
  purge: { byHand: ['purge'], interventions: 1 },
} as const
const BY_ANY_HAND = { byHand: ['retry', 'park', 'purge'], interventions: 1 } as const
const LANES = { ...STRICT, low: 1 }
const ENDINGS = { endings: ['requeue', 'error', 'terminal', 'handback'] } as const
const OWN_TIMERS = { ...STRICT, endings: ['requeue', 'error'], ends: 1, wakes: 1 } as const
/** Each process holds a token for less time than the server waits, so every run has a reason of its own. */
const SWIFT = { ...STRICT, ...ENDINGS, slow: 0, neverStranded: true }

/** Explored wholly, in half a minute, by `npm run model` and `npm run soak explorations`. */
export const SMALL: Record<string, Config> = {
  'two lanes': { ...LANES, high: 2 },
  'two lanes, replicated': { ...LANES, replicas: 3 },
  'a crash': { ...STRICT, high: 2, crashes: 1 },
  'an expired lease, replicated': { ...STRICT, replicas: 3, expiries: 1 },
  'an ambiguous publish': { ...STRICT, high: 2, faults: 1 },
  'every ending': { ...STRICT, ...ENDINGS, high: 2, ends: 1 },
  'renewal after the lease': { ...STRICT, expiries: 1, renews: 1 },
  'late clocks': { ...STRICT, high: 2, lates: 1 },
  'a killed server': { ...STRICT, high: 2, resurrections: 1 },
  "a janitor's mistake, replicated": { ...STRICT, replicas: 3, high: 2, mistakes: 1 },
  'a crash, no room for a token': { ...STRICT, high: 2, crashes: 1, refusals: 1 },
  'an own timer armed anew by mistake': { ...STRICT, endings: ['requeue'], ends: 1, mistakes: 1 },
  'retried by hand': { ...STRICT, ...ENDINGS, ...BY_HAND.retry, ends: 1 },
  'parked by hand': { ...STRICT, ...ENDINGS, ...BY_HAND.park, ends: 1 },
  'purged by hand': { ...STRICT, ...ENDINGS, ...BY_HAND.purge, ends: 1 },
  'changes told to runs': { ...STRICT, announces: 2 },
  'changes told to runs, a crash': { ...STRICT, high: 0, announces: 2, crashes: 1 },
  'changes told to runs, an expired lease': { ...STRICT, high: 0, announces: 2, expiries: 1 },
  'changes told to runs, an ambiguous publish': { ...STRICT, high: 0, announces: 2, faults: 1 },
  'a token told to a run': { ...STRICT, high: 2, tokenLaps: true },
  'a token told to a run, a crash and an expired lease': {
    ...STRICT,
    tokenLaps: true,
    crashes: 1,
    expiries: 1,
    slow: 1,
  },
  'a token told to a run, replicated': { ...STRICT, high: 2, tokenLaps: true, replicas: 3 },
  'a token seen': { ...STRICT, high: 2, sightings: 2 },
  'a token seen, two lanes': { ...LANES, sightings: 1 },
  'a token seen, a crash and an expired lease': { ...STRICT, sightings: 1, crashes: 1, expiries: 1, slow: 0 },
  'a token seen, a killed server': { ...STRICT, sightings: 1, resurrections: 1 },
  'a token seen, replicated': { ...STRICT, high: 2, sightings: 1, replicas: 3 },
  'own timers': { ...OWN_TIMERS, high: 2 },
  'own timers, changes told': { ...OWN_TIMERS, announces: 2, high: 0 },
  'own timers, a crash': { ...OWN_TIMERS, crashes: 1 },
  'progress after a crash, an expired lease': { ...STRICT, high: 2, crashes: 1, expiries: 1, progresses: 1, slow: 0 },
  'a cut key, an ambiguous publish, an expired lease': {
    ...STRICT,
    crashes: 1,
    faults: 1,
    expiries: 1,
    progresses: 1,
    slow: 0,
  },
  'no run without a reason': { ...SWIFT, high: 3, ends: 1, renews: 1, maxRuns: 4 },
  'no run without a reason, a token seen': { ...SWIFT, high: 2, sightings: 1, ends: 1, maxRuns: 4 },
  'no run without a reason, two lanes': { ...SWIFT, high: 2, low: 1, ends: 1, renews: 1, maxRuns: 4 },
}

/** As SMALL, but seconds each. */
export const MEDIUM: Record<string, Config> = {
  'a crash and an expired lease': { ...STRICT, crashes: 1, expiries: 1 },
  'every ending, two lanes': { ...LANES, ...ENDINGS, ends: 1 },
  'no room for a token': { ...STRICT, ...ENDINGS, high: 2, crashes: 1, ends: 1, refusals: 1 },
  'timers armed anew by mistake': { ...STRICT, ...ENDINGS, expiries: 1, renews: 1, ends: 1, mistakes: 1 },
  'a token seen, an ambiguous request': { ...STRICT, high: 2, sightings: 1, faults: 1, slow: 1 },
  'own timers, two lanes': { ...OWN_TIMERS, low: 1 },
  'own timers, an ambiguous publish': { ...OWN_TIMERS, faults: 1 },
  'own timers, an expired lease': { ...OWN_TIMERS, expiries: 1 },
  'progress after a crash, two lanes': { ...LANES, crashes: 1, progresses: 1, slow: 1 },
  'progress after a crash, an ambiguous publish': { ...STRICT, crashes: 1, faults: 1, progresses: 1, slow: 0 },
  'two lost processes, changes told and queued': {
    ...STRICT,
    high: 2,
    announces: 1,
    crashes: 2,
    progresses: 1,
    slow: 0,
  },
  'progress after a crash, told to runs, every ending': {
    ...STRICT,
    ...ENDINGS,
    announces: 1,
    tokenLaps: true,
    crashes: 1,
    ends: 1,
    progresses: 1,
    slow: 0,
  },
}

/** Minutes each: for a change of the protocol. */
export const LARGE: Record<string, Config> = {
  'two lanes twice': { ...LANES, high: 2, low: 2, replicas: 3 },
  'three workers, two lanes': { ...LANES, workers: 3 },
  'three workers, 3 + 1 replicated': { ...LANES, workers: 3, high: 3, replicas: 3 },
  'crash, two lanes': { ...LANES, crashes: 1, replicas: 3 },
  'two lost processes, two lanes': { ...LANES, crashes: 2, progresses: 1, slow: 1 },
  'two crashes, two lanes': { ...LANES, crashes: 2 },
  'two crashes, expiry': { ...STRICT, crashes: 2, expiries: 1, replicas: 3 },
  'crash, expiry, two lanes': { ...LANES, crashes: 1, expiries: 1 },
  'ambiguity, two lanes': { ...LANES, faults: 1 },
  'ambiguity, two lanes, replicated': { ...LANES, faults: 1, replicas: 3 },
  'two ambiguities': { ...STRICT, high: 2, faults: 2 },
  'ambiguity, expiry': { ...STRICT, high: 2, faults: 1, expiries: 1 },
  'ambiguity, expiry, renewal': { ...STRICT, faults: 1, expiries: 1, renews: 1, replicas: 3 },
  'crash, ambiguity': { ...STRICT, high: 2, crashes: 1, faults: 1 },
  'crash, ambiguity, two lanes': { ...LANES, crashes: 1, faults: 1 },
  'renewal after the lease, two lanes': { ...LANES, expiries: 1, renews: 1 },
  'two expiries, two renewals': { ...STRICT, expiries: 2, renews: 2 },
  'endings, crash, two lanes': { ...LANES, ...ENDINGS, ends: 1, crashes: 1 },
  'endings, expiry, two lanes': { ...LANES, ...ENDINGS, ends: 1, expiries: 1 },
  'endings, ambiguity': { ...STRICT, ...ENDINGS, high: 2, ends: 1, faults: 1 },
  'late clocks, crash, ambiguity': { ...STRICT, lates: 1, crashes: 1, faults: 1, replicas: 3 },
  'late clocks, two lanes': { ...LANES, lates: 1 },
  'late clocks, two lanes, expiry': { ...LANES, lates: 1, expiries: 1 },
  'killed server, two lanes, crash': { ...LANES, resurrections: 1, crashes: 1 },
  'three workers, expiry, renewal': { ...STRICT, workers: 3, expiries: 1, renews: 1 },
  'three workers, crash, two lanes': { ...LANES, workers: 3, crashes: 1 },
  'killed server, ambiguity, two lanes': { ...LANES, resurrections: 1, faults: 1 },
  'by hand, crash': { ...STRICT, ...ENDINGS, ...BY_ANY_HAND, ends: 1, crashes: 1 },
  'by hand, expiry': { ...STRICT, ...ENDINGS, ...BY_ANY_HAND, ends: 1, expiries: 1 },
  'by hand, ambiguity': { ...STRICT, ...ENDINGS, ...BY_ANY_HAND, ends: 1, faults: 1 },
  'by hand, two lanes': { ...LANES, ...ENDINGS, ...BY_ANY_HAND, ends: 1 },
  'by hand twice': { ...STRICT, ...ENDINGS, ...BY_ANY_HAND, ends: 1, interventions: 2, high: 2 },
  'by hand, two changes, replicated': { ...STRICT, ...ENDINGS, ...BY_ANY_HAND, ends: 1, high: 2, replicas: 3 },
  'by hand, told': { ...STRICT, ...ENDINGS, ...BY_ANY_HAND, ends: 1, announces: 1, tokenLaps: true },
  'by hand, killed server': { ...STRICT, ...BY_ANY_HAND, resurrections: 1, high: 2 },
  'tokens of two lanes told to a run': { ...LANES, tokenLaps: true },
  'told twice and queued, crash': { ...STRICT, announces: 2, crashes: 1 },
  'told twice, every ending, crash': { ...STRICT, ...ENDINGS, high: 0, announces: 2, ends: 1, crashes: 1 },
  'told and queued, both lanes, crash': { ...LANES, announces: 1, crashes: 1, tokenLaps: true },
  'told and queued, expiry, renewal': { ...STRICT, announces: 1, expiries: 1, renews: 1 },
  'told and queued, ambiguity, replicated': { ...STRICT, announces: 1, faults: 1, replicas: 3, tokenLaps: true },
  'told and queued, late clocks': { ...STRICT, announces: 1, lates: 1, expiries: 1 },
  'told, three workers': { ...STRICT, workers: 3, announces: 2 },
  'tokens told, crash, expiry': { ...STRICT, high: 2, tokenLaps: true, crashes: 1, expiries: 1, slow: 2 },
  'tokens told, both lanes, replicated': { ...LANES, high: 2, tokenLaps: true, replicas: 3 },
  'tokens told, killed server': { ...STRICT, high: 2, tokenLaps: true, resurrections: 1 },
  'seen, two changes, crash': { ...STRICT, high: 2, sightings: 1, crashes: 1 },
  'seen, expiry, renewal': { ...STRICT, sightings: 1, expiries: 1, renews: 1 },
  'seen twice, every ending, crash': { ...STRICT, ...ENDINGS, sightings: 2, ends: 1, crashes: 1 },
  'seen, two changes, ambiguity': { ...STRICT, high: 2, sightings: 2, faults: 1 },
  'seen, both lanes, crash, expiry': { ...LANES, sightings: 1, crashes: 1, expiries: 1, slow: 1 },
  'seen, told to a run, crash': {
    ...STRICT,
    high: 2,
    sightings: 1,
    announces: 1,
    tokenLaps: true,
    crashes: 1,
    slow: 1,
  },
  'seen, killed server, ambiguity': { ...STRICT, sightings: 1, resurrections: 1, faults: 1 },
  'seen, by hand': { ...STRICT, ...ENDINGS, ...BY_ANY_HAND, ends: 1, sightings: 1 },
  'seen, late clocks, three workers': { ...STRICT, workers: 3, sightings: 1, lates: 1 },
  'own timers, told and queued, replicated': { ...OWN_TIMERS, announces: 1, replicas: 3 },
  'own timers twice, by hand': { ...OWN_TIMERS, ...BY_ANY_HAND, ends: 2, wakes: 2 },
  'own timers, crash, ambiguity': { ...OWN_TIMERS, crashes: 1, faults: 1 },
  'own timers, expiry, renewal, told': { ...OWN_TIMERS, announces: 1, high: 0, expiries: 1, renews: 1 },
  'own timers, late clocks, three workers': { ...OWN_TIMERS, workers: 3, lates: 1 },
  'own timers, a token told to a run, mistakes': { ...OWN_TIMERS, tokenLaps: true, mistakes: 1 },
  'own timers, every ending, two changes': { ...OWN_TIMERS, ...ENDINGS, high: 2, wakes: 2 },
  'swift, two ends, two lanes': { ...SWIFT, high: 2, low: 2, ends: 2, renews: 1, maxRuns: 6 },
}

/** Two keys and three workers for them. */
export const TWO_KEYS: Record<string, Config> = {
  'two keys, both lanes': { ...LANES, workers: 3, high: 2, slow: 1 },
  'two keys, changes told and queued, a crash': { ...STRICT, workers: 3, announces: 2, crashes: 1, slow: 0 },
  'two keys, renewal after the lease': { ...STRICT, workers: 3, high: 2, expiries: 1, renews: 1, slow: 0 },
}
