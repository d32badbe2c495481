import type { KeyRecord, Lane } from './record.ts'

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

  token = (reconciler: string, lane: Lane, key: string): string =>
    `${this.#root}work.${reconcilerPart(reconciler)}.${lane}.${key}`

  /** Returns the subject filter for the tokens of a key in both lanes. */
  tokens = (reconciler: string, key: string): string => `${this.#root}work.${reconcilerPart(reconciler)}.*.${key}`

  /**
   * The first part of the generation, its state and slot, stands before the key, so that the server can count and find
   * by it.
   */
  record = (reconciler: string, key: string, generation: string): string => {
    const [front = ''] = generation.split('-', 1)
    return `${this.#root}key.${reconcilerPart(reconciler)}.${front}.${key}.${generation.slice(front.length + 1)}`
  }

  /** Returns the subject filter for all generations of a key's record. In one queue, at most one exists at a time. */
  records = (reconciler: string, key: string): string => `${this.#root}key.${reconcilerPart(reconciler)}.*.${key}.*`

  /**
   * Returns the subject filter for records in a state, of one Reconciler or of all. Sleeping records do not match
   * `waiting`.
   */
  recordsIn = (reconciler: string | undefined, state: KeyRecord['state']): string =>
    `${this.#root}key.${reconciler === undefined ? '*' : reconcilerPart(reconciler)}.${state.charAt(0)}.>`

  /** Returns the subject filter for sleeping records of all Reconcilers in a slot. */
  asleepIn = (slot: string): string => `${this.#root}key.*.w${slot}.>`

  done = (reconciler: string, worker: string): string => `${this.#root}done.${reconcilerPart(reconciler)}.${worker}`

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
    const [, reconciler] = /^(.+)-(?:high|low)$/.exec(consumer) ?? []
    return reconciler?.replaceAll('_', '.')
  }

  /** Returns the subject filter for all tokens (`work`) or records (`key`) of one Reconciler or of all. */
  all = (role: 'work' | 'key', reconciler: string | undefined): string =>
    `${this.#root}${role}.${reconciler === undefined ? '' : `${reconcilerPart(reconciler)}.`}>`

  placeOf(subject: string): SubjectPlace | undefined {
    const tokens = subject.slice(this.#root.length).split('.')
    const [role, named = '', part] = tokens
    const reconciler = named.replaceAll('_', '.')
    if (role === 'work' && (part === 'high' || part === 'low'))
      return { kind: 'token', reconciler, lane: part, key: tokens.slice(3).join('.') }
    if (role === 'key')
      return { kind: 'record', reconciler, key: tokens.slice(3, -1).join('.'), generation: `${part}-${tokens.at(-1)}` }
    return undefined
  }
}

/**
 * The name that stands for a Reconciler in the subjects of sleeping timers; its keys are their buckets. No Kubernetes
 * object can have this name.
 */
export const TIMERS = '.timers'

/** Names of Kubernetes objects contain no `_`, so the replacement can be reversed. */
function reconcilerPart(reconciler: string): string {
  if (reconciler !== TIMERS && !/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(reconciler))
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
