import { isDeepStrictEqual } from 'node:util'
import type { KubeObject } from '#contracts'
import type { Resource } from '#sdk'
import { changesBetween, LawBroken } from './broken.ts'
import { hasField, shrunk } from './conversion-laws.ts'
import { type Schema, Values } from './values.ts'

/**
 * What the laws of `validate` and `admit` may know.
 *
 * @example
 * import type { AdmissionCase } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const once: AdmissionCase = { examples: [Website.of({ metadata: { name: 'a' }, spec: { html: 'hi' } })], seed: 7 }
 * once.seed // => 7
 */
export interface AdmissionCase {
  /**
   * Objects that are admitted. Their values are used as well, which is necessary where a schema has a pattern, or where
   * `validate` admits few values.
   *
   * @default none
   */
  examples?: readonly KubeObject[]
  /**
   * The seed of the values.
   *
   * @default 1
   */
  seed?: number
  /**
   * The number of specs for each law.
   *
   * @default 300
   */
  runs?: number
  /**
   * The users who write. `admit` is asked about each of them.
   *
   * @default one without groups
   */
  users?: readonly { name: string; groups: readonly string[] }[]
}

/**
 * Returns the laws of `validate` and `admit` of a resource, as rows of a test runner. Each asks it about specs that the
 * schema admits: created, and changed from one to another; `admit` also about deletions. It rejects with the resource, the
 * path, and the smallest spec that it has found. Throws an Error for a resource without both.
 *
 * @example
 * import { resource, z } from 'fairlead'
 * import { admissionLawsOf } from 'fairlead/testing'
 * const Range = resource({
 *   group: 'example.com', version: 'v1', kind: 'Range', plural: 'ranges',
 *   spec: z.object({ from: z.int32(), to: z.int32() }), status: z.object({}),
 *   validate: ({ spec }) => (spec.from > spec.to ? [{ path: '.spec.from', message: 'it is above spec.to' }] : []),
 * })
 * const rows = admissionLawsOf(Range)
 * for (const [, holds] of rows) await holds()
 * rows[0]?.[0] // => 'validate answers for each spec that the schema admits, created or changed'
 */
export function admissionLawsOf(
  resource: Resource,
  options: AdmissionCase = {},
): [law: string, holds: () => Promise<void>][] {
  const { validate, judge } = resource
  const { users = [{ name: 'user', groups: [] }] } = options
  const admit = judge && ((change: Change) => judgedFor(users, judge, change))
  if (validate === undefined && admit === undefined)
    throw new Error(`resource ${resource.kind} has neither "validate" nor "admit": it has no laws of admission`)
  const lawsOf = (name: string, ask: Ask, laws: readonly [string, Check][]) =>
    laws.map(([law, check]): [string, () => Promise<void>] => [
      `${name} ${law}`,
      async () => check(new Trial(resource, { name, ask }, options)),
    ])
  const all = Object.entries(LAWS)
  return [
    ...(validate ? lawsOf('validate', validate, all) : []),
    // Whom it admits is not known.
    ...(admit ? lawsOf('admit', admit, all.slice(0, -1)) : []),
  ]
}

type Ask = NonNullable<Resource['validate']>
type Check = (trial: Trial) => void

/** What is found in the writes of all users: the change, and the deletion of what it makes. */
function judgedFor(
  users: NonNullable<AdmissionCase['users']>,
  judge: NonNullable<Resource['judge']>,
  change: Change,
): ReturnType<Ask> {
  const operation = change.old === undefined ? 'CREATE' : 'UPDATE'
  const found = users.flatMap((user) => [
    judge({ ...change, operation, user, name: 'a' }),
    judge({ spec: change.spec, operation: 'DELETE', user, name: 'a' }),
  ])
  return {
    refusals: found.flatMap(({ refusals }) => refusals),
    warnings: found.flatMap(({ warnings }) => warnings),
  }
}

/** No API server waits as long for a webhook without a user who notices. */
const MOST_CPU_MS = 200
const LONGEST = 2000

const LAWS: Record<string, Check> = {
  'answers for each spec that the schema admits, created or changed': (trial) =>
    trial.demand((change) => {
      const began = process.threadCpuUsage()
      const { error } = trial.ask(change)
      const { user } = process.threadCpuUsage(began)
      if (user > MOST_CPU_MS * 1000)
        throw trial.error(
          change,
          `${trial.name} takes ${Math.round(user / 1000)} ms, in which the process does nothing else`,
        )
      return error && { what: `${trial.name} does not answer`, because: error }
    }),

  'answers the same at any time, in any order': (trial) => trial.demandPure(),

  'names fields of the schema': (trial) =>
    trial.demand((change) => {
      const { found = [] } = trial.ask(change)
      const unknown = found.find(({ path }) => !hasField(trial.schema, plainPath(path)))
      return (
        unknown && { what: `${trial.name} names ${unknown.path}, which the schema does not have: ${unknown.message}` }
      )
    }),

  'admits the examples, and not nothing': (trial) => trial.demandAdmitted(),
}

interface Change {
  spec: unknown
  old?: unknown
}

interface Fault {
  what: string
  because?: Error
}

type Find = (change: Change) => Fault | undefined

class Trial {
  readonly schema: Schema
  readonly #resource: Resource
  /** `validate` or `admit`. */
  readonly name: string
  readonly #ask: Ask
  readonly #case: AdmissionCase

  constructor(resource: Resource, { name, ask }: { name: string; ask: Ask }, options: AdmissionCase) {
    this.#resource = resource
    this.name = name
    this.#ask = ask
    this.#case = options
    this.schema = resource.versions()[0]?.schema ?? {}
  }

  /** Asks about the change as its author has written it. */
  ask({ spec, old }: Change): { found?: { path: string; message: string }[]; error?: Error } {
    try {
      const { refusals, warnings } = this.#ask({
        spec: this.#parsed(spec),
        ...(old !== undefined && { old: this.#parsed(old) }),
      })
      return { found: [...refusals, ...warnings] }
    } catch (error) {
      return { error: error as Error }
    }
  }

  /** Throws for the first change in which `find` finds a fault, after it is made smaller. */
  demand(find: Find): void {
    for (const change of this.#changes()) {
      const fault = find(change)
      if (fault !== undefined) throw this.#broken(change, fault, find)
    }
  }

  demandPure(): void {
    const changes = [...this.#changes()]
    const first = changes.map((change) => this.ask(change))
    for (const before = Date.now(); Date.now() === before; );
    const again = changes
      .toReversed()
      .map((change) => this.ask(change))
      .reverse()
    for (const [index, change] of changes.entries()) {
      if (isDeepStrictEqual(first[index], again[index])) continue
      const lines = changesBetween(first[index], again[index])
      throw this.error(change, `${this.name} gives two answers to the same question`, {
        lines,
        sides: ['first', 'second'],
      })
    }
  }

  demandAdmitted(): void {
    for (const { spec } of this.#case.examples ?? []) {
      const { refusals } = this.#ask({ spec: this.#parsed(spec) })
      const [refusal] = refusals
      if (refusal !== undefined)
        throw this.error({ spec }, `validate refuses an example: ${refusal.path}: ${refusal.message}`)
    }
    if ((this.#case.examples ?? []).length > 0) return
    let last: Change = { spec: {} }
    for (last of this.#changes()) if (this.#ask({ spec: this.#parsed(last.spec) }).refusals.length === 0) return
    throw this.error(last, 'validate refuses each spec that is tried: give "examples" that it admits')
  }

  /** The spec in the stored version, as functions get it. Throws for one that the schema refuses. */
  #parsed(spec: unknown): unknown {
    const { group, version, kind } = this.#resource
    return this.#resource.parse({
      apiVersion: `${group}/${version}`,
      kind,
      metadata: { name: 'a' },
      spec,
    }).spec
  }

  #isValid(spec: unknown): boolean {
    try {
      return this.#parsed(spec) !== undefined
    } catch {
      return false
    }
  }

  /** Each spec as a creation, as a change from the one before it, and as a change of one field. */
  *#changes(): Generator<Change> {
    const { seed = 1, runs = 300, examples = [] } = this.#case
    const { version, group } = this.#resource
    const specs = examples.flatMap(({ apiVersion, spec }) => (apiVersion === `${group}/${version}` ? [spec] : []))
    const values = new Values(
      seed,
      specs.map((spec) => ({ spec })),
    )
    const valid: unknown[] = []
    for (let round = 0; round < runs; round++) {
      const spec = specs[round] ?? values.admitted(this.schema.properties?.['spec'] ?? {}, '.spec')
      if (!this.#isValid(spec)) continue
      yield { spec }
      const old = valid.at(-1)
      valid.push(spec)
      if (old === undefined) continue
      yield { spec, old }
      const [name, value] = values.pick(Object.entries(spec as object)) ?? []
      const edited = name === undefined ? old : { ...(old as object), [name]: value as unknown }
      if (this.#isValid(edited)) yield { spec: edited, old }
    }
    if (valid.length === 0) throw new Error(`no valid spec of ${this.#resource.kind} is found: give "examples"`)
  }

  /** Leaves out fields as long as there is a fault. */
  #broken(change: Change, fault: Fault, find: Find): LawBroken {
    const [smallest, { what, because }] = shrunk(change, fault, (less) => {
      const specs = [less.spec, ...('old' in less ? [less.old] : [])]
      return specs.every((spec) => this.#isValid(spec)) ? find(less) : undefined
    })
    return this.error(smallest, what, { because })
  }

  error(change: Change, what: string, found: ConstructorParameters<typeof LawBroken>[1] = {}): LawBroken {
    const { seed = 1 } = this.#case
    const text = JSON.stringify(change)
    const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text
    return new LawBroken(`resource ${this.#resource.kind}: ${what}\n  ${shown} (seed ${seed})`, found)
  }
}

/** `spec.ports[2].name` as `.spec.ports[].name`. */
const plainPath = (path: string): string => `.${path}`.replaceAll(/\[\d+\]/g, '[]').replaceAll(/\['[^]*?'\]/g, '.*')
