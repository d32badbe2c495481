import type { KeyRecord, Lane } from './record.ts'

/** A name, key or prefix that cannot stand in a NATS subject. */
export class InvalidNameError extends Error {
  override readonly name = 'InvalidNameError'
}

/** Where a subject of the queue's stream belongs. */
export type Place =
  | { kind: 'token'; fn: string; key: string; lane: Lane }
  | { kind: 'record'; fn: string; key: string; generation: string }

/** Subjects, stream and consumers of one queue. A function is named like a Kubernetes object; dots become `_`. */
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

  /** Of no function. */
  get mark(): string {
    return `${this.#root}key._`
  }

  token = (fn: string, lane: Lane, key: string): string => `${this.#root}work.${fnToken(fn)}.${lane}.${key}`

  /** What a generation begins with, its state and slot, stands in front: the server can count and find by that. */
  record = (fn: string, key: string, generation: string): string => {
    const [front = ''] = generation.split('-', 1)
    return `${this.#root}key.${fnToken(fn)}.${front}.${key}.${generation.slice(front.length + 1)}`
  }

  /** All generations of a key's record: of one queue there is at most one at a time. */
  records = (fn: string, key: string): string => `${this.#root}key.${fnToken(fn)}.*.${key}.*`

  /** Of one function, or of all. Those that sleep are not among the waiting ones. */
  recordsIn = (fn: string | undefined, state: KeyRecord['state']): string =>
    `${this.#root}key.${fn === undefined ? '*' : fnToken(fn)}.${state.charAt(0)}.>`

  /** Of all functions. */
  asleepIn = (slot: string): string => `${this.#root}key.*.w${slot}.>`

  done = (fn: string, worker: string): string => `${this.#root}done.${fnToken(fn)}.${worker}`

  /** A schedule that tells how far the server is, and where it says so. */
  probe = (fn: string, nonce: string): { schedule: string; fired: string } => {
    const subject = `${this.#root}done.${fnToken(fn)}.${nonce}`
    return { schedule: `${subject}.probe`, fired: `${subject}.fired` }
  }

  tokensOf = (fn: string, lane: Lane): string => `${this.#root}work.${fnToken(fn)}.${lane}.>`

  tokensIn = (fn: string, lane: Lane, namespace: string): string =>
    `${this.#root}work.${fnToken(fn)}.${lane}.${namespace}.>`

  /** What the server tells of each token as it is stored, whoever has stored it. */
  get republished(): { src: string; dest: string } {
    return { src: `${this.#root}work.>`, dest: `${this.#root}queued.>` }
  }

  queued = (fn: string, lane: Lane): string => `${this.#root}queued.${fnToken(fn)}.${lane}.>`

  /** The key that the server tells of. */
  keyQueued = (subject: string): string => subject.slice(this.#root.length).split('.').slice(3).join('.')

  consumer = (fn: string, lane: Lane): string => `${fnToken(fn)}-${lane}`

  /** The function of a consumer's name; undefined for other names. */
  functionOf(consumer: string): string | undefined {
    const [, fn] = /^(.+)-(?:high|low)$/.exec(consumer) ?? []
    return fn?.replaceAll('_', '.')
  }

  /** Everything of one function, or of all. */
  all = (role: 'work' | 'key', fn: string | undefined): string =>
    `${this.#root}${role}.${fn === undefined ? '' : `${fnToken(fn)}.`}>`

  placeOf(subject: string): Place | undefined {
    const tokens = subject.slice(this.#root.length).split('.')
    const [role, fnPart = '', part] = tokens
    const fn = fnPart.replaceAll('_', '.')
    if (role === 'work' && (part === 'high' || part === 'low'))
      return { kind: 'token', fn, lane: part, key: tokens.slice(3).join('.') }
    if (role === 'key')
      return { kind: 'record', fn, key: tokens.slice(3, -1).join('.'), generation: `${part}-${tokens.at(-1)}` }
    return undefined
  }
}

/** The function whose keys are the buckets of sleeping timers. No object of Kubernetes can have that name. */
export const TIMERS = '.timers'

/** Names of Kubernetes objects have no `_`, so this can be undone. */
function fnToken(fn: string): string {
  if (fn !== TIMERS && !/^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/.test(fn))
    throw new InvalidNameError(
      `function name ${JSON.stringify(fn)} must be lower-case letters, digits, dashes and dots, as in Kubernetes`,
    )
  return fn.replaceAll('.', '_')
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
