import type { Headers, StoredMessage } from '#nats'
import {
  afterLease,
  type Causes,
  type Expected,
  type Failures,
  type KeyRecord,
  type Lane,
  type NewRecord,
  type Publish,
  type Token,
} from './record.ts'

/** Thrown for a name, key or prefix that NATS does not allow in a subject. */
export class InvalidNameError extends Error {
  override readonly name = 'InvalidNameError'
}

/** The role of a subject in the queue's stream. */
export type SubjectPlace =
  | { kind: 'token'; reconciler: string; key: string; lane: Lane }
  | { kind: 'record'; reconciler: string; key: string; generation: string }

/**
 * The names of subjects, stream and consumers of one queue. The part for a Reconciler is the name of its object with
 * `_` for each dot.
 */
export class Names {
  readonly stream: string
  readonly #root: string

  constructor(prefix: string) {
    if (!/^[A-Za-z0-9-]*$/.test(prefix))
      throw new InvalidNameError(`prefix ${JSON.stringify(prefix)} may have only letters, digits and dashes`)
    this.stream = prefix === '' ? 'WORK' : `${prefix}_WORK`
    this.#root = prefix === '' ? '' : `${prefix}.`
  }

  get subjects(): string[] {
    return ['work', 'key', 'done'].map((role) => `${this.#root}${role}.>`)
  }

  /** The subject of a message that belongs to no Reconciler. */
  get mark(): string {
    return `${this.#root}key._`
  }

  /** The subject of a rate that several processes keep together. It has fewer parts than that of a record. */
  rate = (name: string): string => `${this.#root}key._rate.${name.replaceAll('.', '_')}`

  token = (reconciler: string, lane: Lane, key: string): string =>
    `${this.#root}work.${reconcilerPart(reconciler)}.${lane}.${key}`

  /** Returns the subject filter for the tokens of a key in both lanes. */
  tokens = (reconciler: string, key: string): string => `${this.#root}work.${reconcilerPart(reconciler)}.*.${key}`

  /** The first part of the generation, its state, stands before the key, so that the server can count and find by it. */
  record = (reconciler: string, key: string, generation: string): string => {
    const [front = ''] = generation.split('-', 1)
    return `${this.#root}key.${reconcilerPart(reconciler)}.${front}.${key}.${generation.slice(front.length + 1)}`
  }

  /** Returns the subject filter for all generations of a key's record. In one queue, at most one exists at a time. */
  records = (reconciler: string, key: string): string => `${this.#root}key.${reconcilerPart(reconciler)}.*.${key}.*`

  /** Returns the subject filter for records in a state. Timers that an earlier version has put to sleep do not match. */
  recordsIn = (reconciler: string | undefined, state: KeyRecord['state']): string =>
    `${this.#root}key.${reconciler === undefined ? '*' : reconcilerPart(reconciler)}.${state.charAt(0)}.>`

  done = (reconciler: string, worker: string): string => `${this.#root}done.${reconcilerPart(reconciler)}.${worker}`

  /** The subject of a message that shows that a worker waits for its rate. `*`: of any worker. */
  limited = (reconciler: string, worker: string): string =>
    `${this.#root}done.${reconcilerPart(reconciler)}.${worker}.limited`

  /**
   * Returns the subject of a schedule that shows how far the server is, and the subject where the server publishes its
   * firing.
   */
  probe = (reconciler: string, nonce: string): { schedule: string; fired: string } => {
    const subject = `${this.#root}done.${reconcilerPart(reconciler)}.${nonce}`
    return { schedule: `${subject}.probe`, fired: `${subject}.fired` }
  }

  tokensOf = (reconciler: string, lane: Lane): string => `${this.#root}work.${reconcilerPart(reconciler)}.${lane}.>`

  tokensIn = (reconciler: string, lane: Lane, namespace: string): string =>
    `${this.#root}work.${reconcilerPart(reconciler)}.${lane}.${namespace}.>`

  /** The mapping by which the server announces each stored token, whichever process has stored it. */
  get republished(): { src: string; dest: string } {
    return { src: `${this.#root}work.>`, dest: `${this.#root}queued.>` }
  }

  queued = (reconciler: string, lane: Lane): string => `${this.#root}queued.${reconcilerPart(reconciler)}.${lane}.>`

  /** Returns the key from the subject of an announcement. */
  keyQueued = (subject: string): string => subject.slice(this.#root.length).split('.').slice(3).join('.')

  consumer = (reconciler: string, lane: Lane): string => `${reconcilerPart(reconciler)}-${lane}`

  /**
   * Returns the Reconciler that a consumer is named after. Undefined: the name is not one of this queue's consumers.
   */
  reconcilerOf(consumer: string): string | undefined {
    const [, reconciler] = /^([^_].*)-(?:high|low)$/.exec(consumer) ?? []
    return reconciler?.replaceAll('_', '.')
  }

  /** Returns the subject filter for all tokens (`work`) or records (`key`) of one Reconciler or of all. */
  all = (role: 'work' | 'key', reconciler: string | undefined): string =>
    `${this.#root}${role}.${reconciler === undefined ? '' : `${reconcilerPart(reconciler)}.`}>`

  /** Undefined: the subject is not one of a Reconciler. An earlier version had subjects of `_timers`. */
  placeOf(subject: string): SubjectPlace | undefined {
    const tokens = subject.slice(this.#root.length).split('.')
    const [role, named = '', part] = tokens
    if (named.startsWith('_')) return undefined
    const reconciler = named.replaceAll('_', '.')
    if (role === 'work' && (part === 'high' || part === 'low'))
      return { kind: 'token', reconciler, lane: part, key: tokens.slice(3).join('.') }
    if (role === 'key')
      return { kind: 'record', reconciler, key: tokens.slice(3, -1).join('.'), generation: `${part}-${tokens.at(-1)}` }
    return undefined
  }
}

/** Names of Kubernetes objects contain no `_`, so the replacement can be reversed. */
function reconcilerPart(reconciler: string): string {
  if (!/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(reconciler))
    throw new InvalidNameError(
      `Reconciler name ${JSON.stringify(reconciler)} must be lower-case letters, digits, dashes and dots, as in Kubernetes`,
    )
  return reconciler.replaceAll('.', '_')
}

/** Returns the namespace of a key. Undefined for keys without one: they share one turn. */
export function namespaceOf(key: string): string | undefined {
  const end = key.indexOf('.')
  return end < 0 ? undefined : key.slice(0, end)
}

export function demandKey(key: string): void {
  if (!/^[^\s.*>]+(\.[^\s.*>]+)*$/.test(key))
    throw new InvalidNameError(`key ${JSON.stringify(key)} must be NATS subject tokens without wildcards or spaces`)
}

export interface WireMessage {
  subject: string
  headers: Headers
  payload: string
}

/** The key and queue of a message, and the process that writes it. */
export interface Address {
  names: Names
  reconciler: string
  key: string
  worker: string
}

/** The state of a rate of runs. Times are the server's. */
export interface RateState {
  /** When all runs that were permitted are paid for, at perSecond. */
  usedUntil: number
  storedAt: number
}

/** The state of a rate, if its message has not changed since. It expires when the rate is long unused. */
export function rateMessage(
  name: string,
  { usedUntil, storedAt, after }: RateState & { after: number },
  names: Names,
): WireMessage {
  const ttl = Math.max(0, Math.ceil((usedUntil - storedAt) / 1000)) + RATE_TTL_S
  const headers = {
    [USED_UNTIL]: usedUntil.toFixed(3),
    'Nats-TTL': `${ttl}s`,
    'Nats-Expected-Last-Subject-Sequence': after,
  }
  return { subject: names.rate(name), headers, payload: '' }
}

export const rateFrom = ({ headers, storedAt }: StoredMessage): RateState => ({
  usedUntil: Number(headers[USED_UNTIL]) || 0,
  storedAt,
})

/** Shows for this time that a worker waits for its rate. */
export const limitedMessage = (subject: string, ms: number): WireMessage => ({
  subject,
  headers: { 'Nats-TTL': `${ms / 1000}s` },
  payload: '',
})

const USED_UNTIL = 'Fairlead-Used-Until'
const RATE_TTL_S = 600

/** Expiry of a release. A release has no content; the stream keeps one such message per worker for this long. */
const DONE_TTL = '600s'
const MAX_ERROR_CHARS = 2000

export function toWire(message: Publish, { names, reconciler, key, worker }: Address): WireMessage {
  const guards = {
    ...expectation(message.expected, names.records(reconciler, key)),
    ...(message.cancels !== undefined && cancellation(names.record(reconciler, key, message.cancels))),
  }
  switch (message.role) {
    case 'token': {
      const reason = message.cutShort ? 'CutShort' : undefined
      const headers = {
        ...failureHeaders(message),
        'Fairlead-Reason': reason,
        ...causesHeader(message.causes),
        ...guards,
      }
      return { subject: names.token(reconciler, message.lane, key), headers, payload: shortened(message.error) }
    }
    case 'record': {
      const { record } = message
      const headers = { ...recordHeaders(record, names.token(reconciler, record.lane, key)), ...guards }
      return { subject: names.record(reconciler, key, record.generation), headers, payload: shortened(record.error) }
    }
    case 'done':
      return { subject: names.done(reconciler, worker), headers: { 'Nats-TTL': DONE_TTL, ...guards }, payload: '' }
  }
}

const expectation = ({ of, sequence }: Expected, records: string): Headers => ({
  'Nats-Expected-Last-Subject-Sequence': sequence,
  'Nats-Expected-Last-Subject-Sequence-Subject': of === 'record' ? records : undefined,
})

/** Removes a schedule in the same step as the publish (NATS ADR-51). */
const cancellation = (subject: string): Headers => ({ 'Nats-Scheduler': subject, 'Nats-Schedule-Next': 'purge' })

const recordHeaders = (record: NewRecord, target: string): Headers => ({
  'Fairlead-State': record.state,
  'Fairlead-Owner': record.owner,
  'Fairlead-By': record.by,
  ...failureHeaders(record),
  'Fairlead-Since': Math.round(record.since),
  'Fairlead-Dirty': record.dirty ? 1 : undefined,
  'Fairlead-Other-Lane': record.otherLaneWaits ? 1 : undefined,
  'Fairlead-Begun': record.begun ? 1 : undefined,
  'Fairlead-Reason': record.reason,
  ...causesHeader(record.causes),
  'Fairlead-Due': record.state === 'waiting' ? Math.ceil(record.at) : undefined,
  'Nats-Schedule': `@at ${new Date(Math.ceil(record.at)).toISOString()}`,
  'Nats-Schedule-Target': target,
})

const failureHeaders = ({ attempt, cuts, losses, suspect }: Failures): Headers => ({
  'Fairlead-Attempt': attempt || undefined,
  'Fairlead-Cuts': cuts || undefined,
  'Fairlead-Losses': losses || undefined,
  'Fairlead-Suspect': suspect ? 1 : undefined,
})

const CAUSES = 'Fairlead-Causes'

/** NATS stores headers as text of one line. Names of Kubernetes objects seldom have other characters. */
const causesHeader = (causes: Causes | undefined): Headers =>
  causes === undefined ? {} : { [CAUSES]: causes.map(asHeader).join(';') }

const asHeader = (cause: string): string => cause.replaceAll(/[^\x20-\x7e]|[%;]/gu, encodeURIComponent)

function causesFrom({ headers }: StoredMessage): { causes?: Causes } {
  const causes = headers[CAUSES]
  return causes === undefined ? {} : { causes: causes.split(';').map(fromHeader) }
}

function fromHeader(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

const shortened = (error = ''): string =>
  error.length > MAX_ERROR_CHARS ? `${error.slice(0, MAX_ERROR_CHARS - 1)}…` : error

/** Returns the record in a message. Undefined: the message is not a record of this protocol. */
export function recordFrom(message: StoredMessage, names: Names): KeyRecord | undefined {
  const { headers, sequence } = message
  const place = names.placeOf(message.subject)
  const target = names.placeOf(headers['Nats-Schedule-Target'] ?? '')
  const state = headers['Fairlead-State']
  if (place?.kind !== 'record' || target?.kind !== 'token') return undefined
  if (state !== 'running' && state !== 'waiting' && state !== 'parked') return undefined
  return {
    state,
    sequence,
    generation: place.generation,
    owner: headers['Fairlead-Owner'] ?? '',
    ...(headers['Fairlead-By'] !== undefined && { by: headers['Fairlead-By'] }),
    lane: target.lane,
    ...failuresFrom(message),
    at: Number(headers['Fairlead-Due'] ?? Date.parse(headers['Nats-Schedule']?.slice('@at '.length) ?? '')),
    since: Number(headers['Fairlead-Since']),
    dirty: headers['Fairlead-Dirty'] === '1',
    otherLaneWaits: headers['Fairlead-Other-Lane'] === '1',
    ...(hasBegun(message) && { begun: true }),
    ...reasonFrom(headers['Fairlead-Reason']),
    ...causesFrom(message),
    ...errorFrom(message),
  }
}

/**
 * Whether a process of an earlier version has put this timer to sleep. The schedule is 30 days later than `at`, and the
 * state in the subject names a slot of buckets that no process opens any more.
 */
export const isAsleep = ({ generation }: KeyRecord): boolean => /^w\d/.test(generation)

const REASONS = ['Requeue', 'Error', 'CutShort', 'Terminal', 'Withdrawn'] as const

function reasonFrom(header: string | undefined): Pick<KeyRecord, 'reason'> {
  const reason = REASONS.find((known) => known === header)
  return reason === undefined ? {} : { reason }
}

/** Returns the error of the previous run, if it failed. */
export const errorFrom = ({ data }: StoredMessage): { error?: string } =>
  data.length === 0 ? {} : { error: new TextDecoder().decode(data) }

/** `counts`: false if the token follows from a lease whose end does not count. */
export function tokenFrom(message: StoredMessage, lane: Token['lane'], counts = true): Token {
  const failures = failuresFrom(message)
  const token = { lane, sequence: message.sequence, cutShort: isCutShort(message), ...failures, ...causesFrom(message) }
  return counts && isWatchdog(message) ? { ...token, ...afterLease(token, hasBegun(message)), cutShort: true } : token
}

/** Whether a run is known to have begun under the lease of this message. */
export const hasBegun = ({ headers }: StoredMessage): boolean => headers['Fairlead-Begun'] === '1'

function failuresFrom({ headers }: StoredMessage): Failures {
  const cuts = Number(headers['Fairlead-Cuts'] ?? 0)
  const losses = Number(headers['Fairlead-Losses'] ?? 0)
  const suspect = headers['Fairlead-Suspect'] === '1'
  return {
    attempt: Number(headers['Fairlead-Attempt'] ?? 0),
    ...(cuts > 0 && { cuts }),
    ...(losses > 0 && { losses }),
    ...(suspect && { suspect }),
  }
}

const isCutShort = ({ headers }: StoredMessage): boolean => headers['Fairlead-Reason'] === 'CutShort'

/** Whether the lease of the key has expired: the server made this token from a running record whose run never ended. */
export const isWatchdog = ({ headers }: StoredMessage): boolean => headers['Fairlead-State'] === 'running'

/** Returns the owner of the record that the server made this token from. */
export const ownerOf = ({ headers }: StoredMessage): string | undefined => headers['Fairlead-Owner']

/** Whether a timer came due: the server made this token from a waiting record and kept its headers. */
const isFired = ({ headers }: StoredMessage): boolean => headers['Fairlead-State'] === 'waiting'

/** Returns when that timer was due, in the server's time. */
export const dueOf = (message: StoredMessage): number | undefined =>
  isFired(message) ? Number(message.headers['Fairlead-Due']) : undefined
