import type { Names } from '../../../streams/queue/wire.ts'
import { addToken, neverTaken, type Tokens } from './tokens.ts'

/** A message of the stream's history, in the words of the queue's protocol. Times are the server's, in milliseconds. */
export interface Stored {
  sequence: number
  subject: string
  at: number
  headers: Readonly<Record<string, string>>
}

/** A schedule that stands: the record of a key. */
interface Standing {
  subject: string
  sequence: number
  running: boolean
  due: number
}

const CROSS_MS = 5000
const REMEMBER_MS = 60_000

interface Ending {
  byFire: boolean
  at: number
}

export interface History {
  names: Names
  /** The stream has more than one replica. */
  replicated: boolean
  lastSequence: number
  /** Sequences that the observer did not see: stored while a server was dying. */
  missed: number
  /** What came before it proves nothing about what follows. */
  lastMissed: number
  /** By key, the one record that stands. */
  records: Map<string, Standing>
  tokens: Tokens
  /** By key, the sequence of the message that ended its last record. */
  endedBy: Map<string, number>
  /** How each generation ended, for as long as it may matter. */
  ended: Map<string, Ending>
  /** Ends that a fire and a client's write both brought about. */
  crossed: number
  /** How late timers fired, and when they were due. */
  lateness: { due: number; ms: number }[]
  /** When the waiting records that an owner wrote are due. */
  promised: Map<string, number[]>
  counts: {
    messages: number
    tokens: number
    records: number
    releases: number
    probes: number
    fires: number
    watchdogs: number
  }
  wrong: string[]
}

export const noHistory = (names: Names, { replicated = false } = {}): History => ({
  names,
  replicated,
  lastSequence: 0,
  missed: 0,
  lastMissed: -1,
  records: new Map(),
  tokens: new Map(),
  endedBy: new Map(),
  ended: new Map(),
  crossed: 0,
  lateness: [],
  promised: new Map(),
  counts: { messages: 0, tokens: 0, records: 0, releases: 0, probes: 0, fires: 0, watchdogs: 0 },
  wrong: [],
})

/** Adds the next message in stream order, and writes down what no correct queue would have stored. */
export function addStored(history: History, message: Stored): void {
  const { sequence, subject, headers } = message
  if (sequence <= history.lastSequence)
    return void history.wrong.push(`sequence ${sequence} was given twice, now to ${subject}`)
  if (sequence > history.lastSequence + 1) miss(history, sequence)
  history.lastSequence = sequence
  history.counts.messages++
  const place = history.names.placeOf(subject)
  const ended = headers['Nats-Schedule-Next'] === 'purge' ? headers['Nats-Scheduler'] : undefined
  if (isProbe(subject)) history.counts.probes++
  else if (ended !== undefined) endRecord(history, ended, message, place?.kind === 'token')
  if (place?.kind === 'record') addRecord(history, `${place.reconciler} ${place.key}`, message)
  if (place?.kind === 'token') {
    history.counts.tokens++
    const lost = addToken(history.tokens, message, (since) => isWhole(history, since))
    if (lost !== undefined) history.wrong.push(lost)
  }
  if (place === undefined && !isProbe(subject)) history.counts.releases++
}

/** Asks how far the server is with its schedules; no key has it. */
export const isProbe = (subject: string): boolean => /(^|\.)done\.[^.]+\.[^.]+\.(probe|fired)$/.test(subject)

function miss(history: History, sequence: number): void {
  history.missed += sequence - history.lastSequence - 1
  history.lastMissed = sequence - 1
}

function endRecord(history: History, subject: string, message: Stored, isToken: boolean): void {
  const place = history.names.placeOf(subject)
  const key = `${place?.reconciler} ${place?.key}`
  const { sequence, at } = message
  const standing = history.records.get(key)
  const before = history.ended.get(subject)
  const byFire = isToken && message.headers['Fairlead-State'] !== undefined
  if (standing?.subject === subject) {
    if (byFire) fire(history, standing, message)
    history.records.delete(key)
  } else if (before && mayCross(history, before, { byFire, at })) {
    history.crossed++
  } else if (before) {
    const how = (fired: boolean) => (fired ? 'its fire' : 'a write')
    history.wrong.push(`${subject} was ended by ${how(before.byFire)}, and once more by ${how(byFire)}, ${sequence}`)
  } else if (isWhole(history, standing?.sequence ?? history.endedBy.get(key) ?? 0)) {
    history.wrong.push(`${sequence} (${message.subject}) ended ${subject}, which did not stand`)
  }
  history.endedBy.set(key, sequence)
  history.ended.set(subject, { byFire, at })
  forget(history.ended, at - REMEMBER_MS)
}

/**
 * The server finds a due record and then stores its fire, so a client may have ended the record in between: one run too
 * many. With several replicas, a client may also end a record whose fire is already stored.
 */
const mayCross = ({ replicated }: History, before: Ending, now: Ending): boolean =>
  before.byFire !== now.byFire && (now.byFire || replicated) && now.at - before.at < CROSS_MS

/** The oldest come first. */
function forget(ended: Map<string, Ending>, before: number): void {
  for (const [subject, { at }] of ended) {
    if (at > before) return
    ended.delete(subject)
  }
}

/** Nothing was missed since that message. */
const isWhole = ({ lastMissed }: History, since: number): boolean => lastMissed < since

function fire(history: History, { subject, due, running }: Standing, { at, sequence }: Stored): void {
  if (at < due) history.wrong.push(`${subject} fired ${due - at} ms early (${sequence})`)
  if (running) history.counts.watchdogs++
  else {
    history.counts.fires++
    history.lateness.push({ due, ms: at - due })
  }
}

function addRecord(history: History, key: string, message: Stored): void {
  history.counts.records++
  const { headers, subject, sequence } = message
  const before = history.records.get(key)
  if (before && isWhole(history, before.sequence))
    history.wrong.push(
      `${subject} (${sequence}) was stored beside ${before.subject} (${before.sequence}): two records of one key`,
    )
  const due = Date.parse((headers['Nats-Schedule'] ?? '').replace('@at ', ''))
  const running = headers['Fairlead-State'] === 'running'
  if (running) history.tokens.delete(headers['Nats-Schedule-Target'] ?? '')
  const owner = headers['Fairlead-Owner'] ?? ''
  history.records.set(key, { subject, sequence, running, due })
  if (headers['Fairlead-State'] === 'waiting')
    history.promised.set(owner, [...(history.promised.get(owner) ?? []), due])
}

/**
 * Returns the remains of an idle queue: records, which are lost timers or orphans, and tokens that disappeared without
 * a run.
 */
export const leftOver = (history: History): string[] => [
  ...[...history.records.values()]
    .filter(({ sequence }) => isWhole(history, sequence))
    .map(({ subject, sequence }) => `${subject} (${sequence}) neither fired nor was ended`),
  ...neverTaken(history.tokens, (since) => isWhole(history, since)),
]
