import type { KeyRecord, Lane } from './record.ts'

/** A name, key or prefix that cannot stand in a NATS subject. */
export class InvalidNameError extends Error {
  override readonly name = 'InvalidNameError'
}

/** Where a subject of the queue's stream belongs. */
export type SubjectPlace =
  | { kind: 'token'; reconciler: string; key: string; lane: Lane }
  | { kind: 'record'; reconciler: string; key: string; generation: string }

/** Subjects, stream and consumers of one queue. A Reconciler is named as its object is; dots become `_`. */
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

  /** Of no Reconciler. */
  get mark(): string {
    return `${this.#root}key._`
  }

  token = (reconciler: string, lane: Lane, key: string): string =>
    `${this.#root}work.${reconcilerPart(reconciler)}.${lane}.${key}`

  /** The tokens of a key in both lanes. */
  tokens = (reconciler: string, key: string): string => `${this.#root}work.${reconcilerPart(reconciler)}.*.${key}`

  /** What a generation begins with, its state and slot, stands in front: the server can count and find by that. */
  record = (reconciler: string, key: string, generation: string): string => {
    const [front = ''] = generation.split('-', 1)
    return `${this.#root}key.${reconcilerPart(reconciler)}.${front}.${key}.${generation.slice(front.length + 1)}`
  }

  /** All generations of a key's record: of one queue there is at most one at a time. */
  records = (reconciler: string, key: string): string => `${this.#root}key.${reconcilerPart(reconciler)}.*.${key}.*`

  /** Of one Reconciler, or of all. Those that sleep are not among the waiting ones. */
  recordsIn = (reconciler: string | undefined, state: KeyRecord['state']): string =>
    `${this.#root}key.${reconciler === undefined ? '*' : reconcilerPart(reconciler)}.${state.charAt(0)}.>`

  /** Of all Reconcilers. */
  asleepIn = (slot: string): string => `${this.#root}key.*.w${slot}.>`

  asleepOf = (reconciler: string, slot: string): string => `${this.#root}key.${reconcilerPart(reconciler)}.w${slot}.>`

  done = (reconciler: string, worker: string): string => `${this.#root}done.${reconcilerPart(reconciler)}.${worker}`

  /** A schedule that tells how far the server is, and where it says so. */
  probe = (reconciler: string, nonce: string): { schedule: string; fired: string } => {
    const subject = `${this.#root}done.${reconcilerPart(reconciler)}.${nonce}`
    return { schedule: `${subject}.probe`, fired: `${subject}.fired` }
  }

  tokensOf = (reconciler: string, lane: Lane): string => `${this.#root}work.${reconcilerPart(reconciler)}.${lane}.>`

  tokensIn = (reconciler: string, lane: Lane, namespace: string): string =>
    `${this.#root}work.${reconcilerPart(reconciler)}.${lane}.${namespace}.>`

  /** What the server tells of each token as it is stored, whoever has stored it. */
  get republished(): { src: string; dest: string } {
    return { src: `${this.#root}work.>`, dest: `${this.#root}queued.>` }
  }

  queued = (reconciler: string, lane: Lane): string => `${this.#root}queued.${reconcilerPart(reconciler)}.${lane}.>`

  /** The key that the server tells of. */
  keyQueued = (subject: string): string => subject.slice(this.#root.length).split('.').slice(3).join('.')

  consumer = (reconciler: string, lane: Lane): string => `${reconcilerPart(reconciler)}-${lane}`

  /** The Reconciler that a consumer is named after. Undefined for other names. */
  reconcilerOf(consumer: string): string | undefined {
    const [, reconciler] = /^(.+)-(?:high|low)$/.exec(consumer) ?? []
    return reconciler?.replaceAll('_', '.')
  }

  /** Everything of one Reconciler, or of all. */
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

/** Stands in the place of a Reconciler; its keys are the buckets of sleeping timers. No object in Kubernetes can have this name. */
export const TIMERS = '.timers'

/** Names of Kubernetes objects have no `_`, so this can be undone. */
function reconcilerPart(reconciler: string): string {
  if (reconciler !== TIMERS && !/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(reconciler))
    throw new InvalidNameError(
      `Reconciler name ${JSON.stringify(reconciler)} must be lower-case letters, digits, dashes and dots, as in Kubernetes`,
    )
  return reconciler.replaceAll('.', '_')
}

/** The first token of a key that has more than one. Keys of objects without a namespace have one in common. */
export function namespaceOf(key: string): string | undefined {
  const end = key.indexOf('.')
  return end < 0 ? undefined : key.slice(0, end)
}

export function demandKey(key: string): void {
  if (!/^[^\s.*>]+(\.[^\s.*>]+)*$/.test(key))
    throw new InvalidNameError(`key ${JSON.stringify(key)} must be NATS subject tokens without wildcards or spaces`)
}
