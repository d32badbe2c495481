import {
  type Act,
  apiVersionOf,
  type FieldChange,
  type InputRecord,
  isRecord,
  type KubeObject,
  kindName,
  type LapRecord,
  type LogLine,
  namespacedName,
  type ObjectVersion,
  type Outcome,
  placeOf,
  type ResourceRef,
  type RunInput,
  type RunRecord,
  type RunResult,
  type Scrub,
  type WriteRecord,
  withoutConfidential,
} from '#contracts'
import type { EndedRun, Logged, TrailRound, TrailWrite } from '#dispatch'
import { parseKey } from '#events'
import {
  type Contents,
  contentsReturned,
  differences,
  isConfidential,
  namesOf,
  OUTCOME_FIELDS,
  sameJson,
  scrubber,
  toldActs,
  WITHHELD,
  withoutContents,
  withoutValues,
} from '#reconcile'

/** Size limits of one record, in characters of JSON. */
const MOST_OBJECTS = 256 * 1024
const MOST_OUTCOMES = 128 * 1024
const MOST_DIFFERENCES = 4 * 1024

type Confidential = (object: Contents) => boolean

/** Facts about a run that the run itself does not contain. */
export interface RunFacts {
  process: string
  cpuMs: number | undefined
}

/**
 * Returns the run as plain data. Leaves out its seed, and the contents of Secrets and of other reference-only kinds.
 */
export function recordOf(run: EndedRun, { process, cpuMs }: RunFacts): RunRecord {
  const { lease, of, startedAt, ms, finish, lost, span, revision, logged } = run
  const { namespace, name } = parseKey(lease.key)
  const confidential: Confidential = (object) => isConfidential(of, object)
  const observed = observedIn(run)
  const returned = run.rounds.flatMap((round) => contentsReturned(round.returned))
  const contents = [...observed, ...returned].filter((one) => confidential(one))
  const scrub = contents.length === 0 ? undefined : scrubber(contents, () => namesOf(of, observed))
  const writer = new RecordWriter(of.spec.for, namespace, confidential, scrub)
  const laps = run.rounds.map((round, index) => writer.round(round, index, run.rounds[index - 1]))
  const requeueAt = finish?.kind === 'requeue' ? finish.at : finish?.kind === 'error' ? finish.retryAt : undefined
  const uid = run.rounds[0]?.input.object?.metadata.uid
  return {
    id: lease.owner,
    reconciler: of.name,
    namespace,
    name,
    uid,
    revision,
    process,
    lane: lease.lane,
    attempt: lease.attempt,
    ...(lease.fired && { fired: true }),
    ...(lease.cutShort && { cutShort: true }),
    ...(lease.causes.length > 0 && { causes: lease.causes }),
    queuedAt: lease.enqueuedAt.toISOString(),
    startedAt: startedAt.toISOString(),
    endedAt: new Date(startedAt.getTime() + ms).toISOString(),
    result: resultOf(run),
    ...(finish && 'message' in finish && { message: finish.message }),
    ...(lost !== undefined && { message: lost }),
    ...(requeueAt && { requeueAt: requeueAt.toISOString() }),
    ...(span && { traceId: span.traceId }),
    requests: run.rounds.reduce((sum, { writes }) => sum + writes.length, 0),
    ...(cpuMs !== undefined && { cpuMs }),
    laps,
    ...logOf(logged, scrub),
    ...(of.spec.invoke.http && { overHttp: true }),
    ...writer.objects(),
    leftOut: writer.leftOut,
  }
}

const RESULTS = { done: 'success', requeue: 'requeue_after', error: 'error', terminal: 'terminal' } as const

export const resultOf = ({ finish }: Pick<EndedRun, 'finish'>): RunResult =>
  finish === undefined ? 'fenced' : RESULTS[finish.kind]

/** Returns the objects that the function received. */
function observedIn({ rounds, logged }: EndedRun): KubeObject[] {
  // A call that only reads the external system has no round.
  const inputs = new Set([...rounds.map(({ input }) => input), ...(logged?.inputs ?? [])])
  return [...inputs].flatMap(({ object, owned, related }) =>
    [object === null ? [] : [object], ...Object.values(owned), ...Object.values(related)].flat(),
  )
}

class RecordWriter {
  readonly leftOut: string[] = ['seed']
  readonly #confidential: Confidential
  /** The status of such an object is confidential too. */
  readonly #isPrimaryWithheld: boolean
  readonly #scrub: Scrub | undefined
  readonly #namespace: string | undefined
  readonly #keepsNames = new WeakSet<object>()
  readonly #objects: Record<ObjectVersion, KubeObject> = {}
  #room = MOST_OBJECTS
  #outcomeRoom = MOST_OUTCOMES

  constructor(
    primary: ResourceRef & { kind: string },
    namespace: string | undefined,
    confidential: Confidential,
    scrub: Scrub | undefined,
  ) {
    this.#namespace = namespace
    this.#confidential = confidential
    this.#isPrimaryWithheld = confidential({ apiVersion: apiVersionOf(primary), kind: primary.kind })
    this.#scrub = scrub
  }

  objects(): Pick<RunRecord, 'objects'> {
    if (this.#room >= 0) return { objects: this.#objects }
    this.leftOut.push(`objects: more than ${MOST_OBJECTS / 1024} KiB`)
    return {}
  }

  round({ input, returned, failed, writes }: TrailRound, index: number, before: TrailRound | undefined): LapRecord {
    const isSame = failed === undefined && before !== undefined && before.failed === undefined
    const outcome = () =>
      isSame && sameJson(before.returned, returned) ? { isSame: true as const } : this.#outcome(returned, index)
    return {
      input: this.#input(input),
      ...(failed === undefined ? outcome() : this.#failure(failed)),
      writes: writes.map((write) => this.#write(write)),
    }
  }

  #failure(failed: unknown): Pick<LapRecord, 'error' | 'place'> {
    const place = placeOf(failed)
    return { error: this.#text(messageOf(failed)), ...(place !== undefined && { place }) }
  }

  #input(input: RunInput): InputRecord {
    const { object, owned, related, attempt, now, finalizing, refused, external, performed, cluster } = input
    return {
      attempt,
      now,
      finalizing,
      ...(refused && { refused: this.#scrubbed(this.#refused(refused)) }),
      ...(external !== undefined && { external: this.#scrubbed(external) }),
      ...(performed && { performed: this.#scrubbed(performed) }),
      ...(cluster && { cluster }),
      object: object === null ? null : this.#version(object),
      owned: this.#versions(owned),
      related: this.#versions(related),
    }
  }

  #versions(kinds: Record<string, KubeObject[]>): Record<string, ObjectVersion[]> {
    const named: Record<string, ObjectVersion[]> = {}
    for (const kind in kinds) named[kind] = (kinds[kind] ?? []).map((object) => this.#version(object))
    return named
  }

  #version(object: KubeObject): ObjectVersion {
    const { namespace, name, resourceVersion = '?' } = object.metadata
    const place = namespace === undefined ? name : `${namespace}/${name}`
    const version = `${kindName(object.kind, object.apiVersion)} ${place}@${resourceVersion}`
    if (this.#room >= 0 && this.#objects[version] === undefined) {
      const isWithheld = this.#confidential(object)
      const told = isWithheld ? withoutContents(object) : object
      if (isWithheld) this.leftOut.push(`contents of ${object.kind} ${place}`)
      this.#room -= sizeOf(told, MOST_OBJECTS)
      this.#objects[version] = told
    }
    return version
  }

  #outcome(returned: unknown, index: number): { outcome?: Outcome } {
    this.#outcomeRoom -= sizeOf(returned ?? {}, MOST_OUTCOMES)
    if (this.#outcomeRoom < 0) {
      this.leftOut.push(`outcome ${index + 1}: more than ${MOST_OUTCOMES / 1024} KiB`)
      return {}
    }
    return { outcome: this.#scrubbed(this.#told(returned ?? {}, index)) }
  }

  /**
   * Returns an outcome without confidential contents. An outcome that is not valid may be anything: its unknown fields
   * keep only their names.
   */
  #told(returned: unknown, index: number): Outcome {
    const fields = Object.entries(isRecord(returned) ? returned : { returned })
    const told = fields.map(([field, value]) => {
      if (field === 'apply' || field === 'patch') return [field, this.#toldObjects(field, value, index)]
      if (field === 'act') return [field, toldActs(value).map((one) => ({ ...one, on: this.#named(one.on) }))]
      if (field === 'status' && this.#isPrimaryWithheld) return [field, withoutStatus(value)]
      return [field, OUTCOME_FIELDS.has(field) ? value : withoutValues(value)]
    })
    return Object.fromEntries(told) as Outcome
  }

  #toldObjects(field: string, given: unknown, index: number): KubeObject[] | undefined {
    if (given === undefined) return undefined
    const objects = Array.isArray(given) ? given.filter(isRecord) : []
    if (!Array.isArray(given) || objects.length < given.length)
      this.leftOut.push(`outcome ${index + 1}: values in "${field}" that are not objects`)
    return (objects as unknown as KubeObject[]).map((one) =>
      this.#named(this.#confidential(one) ? withoutContents(one) : one),
    )
  }

  /** Notes that the object keeps its names, if texts may have them together: it may be incomplete, as the function returned it. */
  #named<Object extends Act['on']>(object: Object): Object {
    const { kind, metadata } = object
    const called = `${kind} ${namespacedName({ namespace: this.#namespace, ...metadata })}`
    if (this.#text(called) !== called) return object
    this.#keepsNames.add(object)
    if (isRecord(metadata)) this.#keepsNames.add(metadata)
    return object
  }

  #refused(refused: NonNullable<RunInput['refused']>): NonNullable<RunInput['refused']> {
    for (const [kind, all] of Object.entries(refused))
      for (const one of all) this.#named({ apiVersion: '', kind: kind.split('.')[0] ?? kind, metadata: one })
    return refused
  }

  #write({ verb, object, before, after, patch, isUnchanged, failed }: TrailWrite): WriteRecord {
    const { namespace, name } = object.metadata
    const resourceVersion = after?.metadata.resourceVersion
    const changes = patch === undefined && before && after ? this.#changes(before, after, 'status' in object) : []
    return {
      verb,
      kind: object.kind,
      namespace,
      name,
      resourceVersion,
      ...(failed !== undefined && { error: this.#text(messageOf(failed)) }),
      ...(isUnchanged && { unchanged: true as const }),
      ...(changes.length > 0 && { differences: changes }),
      ...(patch !== undefined &&
        sizeOf(patch, MOST_DIFFERENCES) <= MOST_DIFFERENCES && {
          patch: this.#scrubbed(verb === 'status' && this.#isPrimaryWithheld ? withoutStatus(patch) : patch),
        }),
    }
  }

  /** `hasStatus`: fields of the status were written. The status of an owned object belongs to its own controller. */
  #changes(before: KubeObject, after: KubeObject, hasStatus: boolean): FieldChange[] {
    const isWithheld = this.#confidential(after)
    let room = MOST_DIFFERENCES
    const told: FieldChange[] = []
    const compared = (one: KubeObject) => (hasStatus ? one : { ...one, status: undefined })
    for (const change of differences(compared(before), compared(after))) {
      const shown = isWithheld ? withheldChange(change) : change
      room -= sizeOf(shown, MOST_DIFFERENCES)
      if (room < 0) break
      told.push(this.#scrubbed(shown))
    }
    return told
  }

  #text(text: string): string {
    return this.#scrub === undefined ? text : this.#scrub(text)
  }

  #scrubbed<T>(value: T): T {
    const [scrub, keepsNames] = [this.#scrub, this.#keepsNames]
    if (scrub === undefined) return value
    const text = JSON.stringify(value, function (this: object, field, one: unknown) {
      const isName = NAMES.has(field) && keepsNames.has(this)
      return typeof one === 'string' && !isName ? scrub(one) : one
    })
    return JSON.parse(text) as T
  }
}

const NAMES = new Set(['apiVersion', 'kind', 'namespace', 'name'])

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error)).slice(0, 4096)

/** Keeps the conditions, from which the messages of failures are scrubbed. */
function withoutStatus(status: unknown): unknown {
  if (!isRecord(status)) return WITHHELD
  const told = Object.entries(status).map(([field, value]) => [field, STATUS_TOLD.has(field) ? value : WITHHELD])
  return Object.fromEntries(told)
}

const STATUS_TOLD = new Set(['conditions', 'observedGeneration'])

const withheldChange = ({ path, ...values }: FieldChange): FieldChange => ({
  path,
  ...('before' in values && { before: WITHHELD }),
  ...('after' in values && { after: WITHHELD }),
})

/** Returns the lines of a run as plain data. `scrub` removes confidential contents; undefined: the run has none. */
function logOf(logged: Logged | undefined, scrub: Scrub | undefined): Pick<RunRecord, 'log'> {
  if (logged === undefined || logged.lines.length + logged.omitted === 0) return {}
  const lines = logged.lines.map(({ at, level, message, fields }): LogLine => {
    const told = fields === undefined ? { withoutFields: true as const } : fieldsOf(fields, scrub)
    return { at: at.toISOString(), level, message: scrub?.(message) ?? message, ...told }
  })
  return { log: { lines, ...(logged.omitted > 0 && { omitted: logged.omitted }) } }
}

function fieldsOf(json: string, scrub: Scrub | undefined): Pick<LogLine, 'fields'> {
  const fields = JSON.parse(json, scrub && withoutConfidential(scrub)) as Record<string, unknown>
  return Object.keys(fields).length === 0 ? {} : { fields }
}

/** Returns the approximate number of characters of the value as JSON, at most `most` + 1: the walk ends there. */
export function sizeOf(value: unknown, most: number): number {
  let size = 0
  const walk = (one: unknown): void => {
    if (size > most) return
    if (typeof one === 'string') size += one.length + 2
    else if (typeof one !== 'object' || one === null) size += 5
    else if (Array.isArray(one)) for (const each of one) walk(each)
    else
      for (const field in one) {
        size += field.length + 4
        walk((one as Record<string, unknown>)[field])
      }
  }
  walk(value)
  return Math.min(size, most + 1)
}
