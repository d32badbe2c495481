import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { notePlace, placeOf, withPlace } from '#contracts'
import type { Operation } from './builders.ts'
import { explain, valueAt } from './options.ts'
import type { Violation } from './rule.ts'

/**
 * What `validate` of a resource finds in a spec.
 *
 * @example
 * import { type Finding, resource, z } from 'fairlead'
 * const finding: Finding = { path: '.spec.every', message: 'a day has 24 hours' }
 * const Backup = resource({
 *   group: 'example.com', version: 'v1', kind: 'Backup', plural: 'backups',
 *   spec: z.object({ every: z.string() }), status: z.object({}),
 *   validate: ({ spec }) => (spec.every === '25h' ? [finding] : []),
 * })
 * Backup.validate?.({ spec: { every: '25h' } }).refusals.map(({ path }) => path) // => ['spec.every']
 */
export interface Finding {
  /** A field of the spec: `.spec.ports[2].name`, `.spec.labels['example.com/a']`. */
  path: string
  /** What is wrong, for whoever writes the object. It is shown as one line of at most 1024 characters. */
  message: string
  /**
   * Refuses nothing, and is only shown.
   *
   * @default false
   */
  warning?: boolean
}

/** A spec, and the one before the write. Left out: the object is created, read from a file, or given to a function. */
export interface SpecChange<Spec> {
  spec: Spec
  old?: Spec | undefined
}

/** What the author declares. */
export type Validate<Spec> = (change: SpecChange<Spec>) => readonly Finding[]

/**
 * A write, and who makes it, as `admit` of a resource judges it.
 *
 * @example
 * import { type Finding, resource, type WriteRequest, z } from 'fairlead'
 * const spec = z.object({ owner: z.string() })
 * const judge = ({ user, spec: { owner } }: WriteRequest<z.output<typeof spec>>): Finding[] =>
 *   user.name === owner ? [] : [{ path: '.spec.owner', message: 'only its owner deletes it' }]
 * const Lab = resource({
 *   group: 'example.com', version: 'v1', kind: 'Lab', plural: 'labs', spec, status: z.object({}),
 *   admit: { operations: ['DELETE'], judge },
 * })
 * const user = { name: 'eve', groups: [] }
 * Lab.judge?.({ operation: 'DELETE', user, name: 'a', spec: { owner: 'ada' } }).refusals.length // => 1
 */
export interface WriteRequest<Spec> extends SpecChange<Spec> {
  /** A write that gives the object other owners is a deletion too: its garbage is collected with them. */
  operation: Operation
  /** As the API server knows the user. */
  user: { name: string; groups: readonly string[] }
  /** Empty at a creation with `generateName`. */
  name: string
  /** Left out: the object is of the whole cluster. */
  namespace?: string
  /** At a deletion, that of the object that goes. */
  spec: Spec
  /** The spec before a change. */
  old?: Spec | undefined
}

/** Who may do what: asked through the webhook, except about writes of the functions of the resource. */
export interface Admit<Spec> {
  /** What is asked about. While nothing answers the API server, it refuses these operations. */
  operations: readonly Operation[]
  /** A pure function of the user, the operation and the spec. */
  judge: (write: WriteRequest<Spec>) => readonly Finding[]
}

/** What a write is refused for, and what its author is warned of. */
export interface Validated {
  refusals: Violation[]
  warnings: Violation[]
}

/** `validate` or `admit` has thrown, or has returned something else than findings: a bug of its author. */
class ValidateError extends Error {
  override readonly name = 'ValidateError'
}

/** A message may quote what a user has written. */
const LONGEST_MESSAGE = 1024
/** Users choose the keys of records, with quotes in them. */
const STEP = /\.([\w$-]+)|\[(\d+)\]|\['((?:[^']|'(?!\]))*)'\]/g
const PATH = new RegExp(`^\\.spec(?:${STEP.source})*$`)

/** A key that looks like the end of its step cannot be named: the record can. */
const nameable = (path: string): string => (PATH.test(path) ? path : path.replace(/\['[^]*/, ''))

const findings = z.array(
  z.strictObject({
    path: z.string().transform(nameable).pipe(z.string().regex(PATH, 'write .spec.ports[2].name')),
    message: z.string().refine((text) => text.trim() !== '', 'write one line'),
    warning: z.boolean().optional(),
  }),
)

/**
 * Returns the function that asks `validate`. What a spec was refused for before a write, and still is on the same value, is
 * not refused, wherever it is now in its list: an object that is older than `validate` can be changed otherwise. Throws a
 * ValidateError for a bug of `validate`.
 */
export function validation(kind: string, validate: Validate<never>): (change: SpecChange<unknown>) => Validated {
  const ask = asker(`resource ${kind}: validate`, validate)
  return ({ spec, old }) => {
    if (old === undefined) return sorted(ask({ spec }))
    const { refusals, warnings } = sorted(ask({ spec, old }))
    if (refusals.length === 0 || isDeepStrictEqual(spec, old)) return { refusals: [], warnings }
    const before = sorted(ask({ spec: old })).refusals
    const isOlder = ({ path, message }: Violation): boolean => {
      const value = valueAt(spec, stepsBelow(path))
      const isSame = (one: Violation): boolean =>
        one.message === message &&
        withoutIndexes(one.path) === withoutIndexes(path) &&
        isDeepStrictEqual(valueAt(old, stepsBelow(one.path)), value)
      const at = before.findIndex(isSame)
      if (at >= 0) before.splice(at, 1)
      return at >= 0
    }
    return { refusals: refusals.filter((one) => !isOlder(one)), warnings }
  }
}

/** Returns the function that asks `admit` about its operations. Throws a ValidateError for a bug of it. */
export function judgement(kind: string, admit: Admit<never>): (write: WriteRequest<unknown>) => Validated {
  const ask = asker(`resource ${kind}: admit`, admit.judge)
  return (write) => sorted(admit.operations.includes(write.operation) ? ask(write) : [], 'FieldValueForbidden')
}

const asker = (code: string, ask: (question: never) => unknown) => (question: object) => {
  const copy = structuredClone(question) as never
  return findingsIn(
    code,
    answered(code, () => ask(copy)),
  )
}

function answered(code: string, ask: () => unknown): unknown {
  try {
    return ask()
  } catch (cause) {
    const place = placeOf(withPlace(cause))
    const message = cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause)
    const error = new ValidateError(`${code} throws ${message}`, { cause })
    if (place !== undefined) notePlace(error, place)
    throw error
  }
}

function findingsIn(code: string, returned: unknown): z.output<typeof findings> {
  if (returned instanceof Promise) {
    returned.catch(() => {})
    throw new ValidateError(`${code} returns a Promise: it has to answer at once`)
  }
  const { success, data, error } = findings.safeParse(returned)
  if (success) return data
  const message = explain(error, returned, 'the list')
  throw new ValidateError(`${code} returns no list of findings: ${message}`, { cause: error })
}

function sorted(found: z.output<typeof findings>, reason = 'FieldValueInvalid'): Validated {
  const violations = (isWarning: boolean): Violation[] =>
    found
      .filter(({ warning = false }) => warning === isWarning)
      .map(({ path, message }) => ({ path: path.slice(1), message: line(message), reason }))
  return { refusals: violations(false), warnings: violations(true) }
}

const withoutIndexes = (path: string): string => path.replaceAll(/\[\d+\]/g, '[]')

const line = (text: string): string => text.slice(0, LONGEST_MESSAGE).replaceAll(/[\r\n]/g, ' ')

/** The parts of `spec.ports[2].name` below the spec. */
const stepsBelow = (path: string): string[] =>
  [...path.slice('spec'.length).matchAll(STEP)].map(([, plain, index, quoted]) => plain ?? index ?? quoted ?? '')

const MOST_REFUSALS = 20

/** `spec.size: it is too large; spec.name: …`, for the status of an object. */
export function refusalText(refusals: readonly Violation[]): string {
  const shown = refusals.slice(0, MOST_REFUSALS).map(({ path, message }) => `${path}: ${message}`)
  const more = refusals.length - shown.length
  return [...shown, ...(more > 0 ? [`and ${more} more`] : [])].join('; ')
}
