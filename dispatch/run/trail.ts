import type { KubeObject, Outcome, RunInput } from '#contracts'
import type { Span } from '#events'
import type { Finish, Lease } from '#queue'
import type { Answer, Ask, Reconciled, Write, Written } from '#reconcile'
import type { Logged } from './run-lines.ts'

/** One request of a run, and its result. */
export interface TrailWrite {
  verb: Write['verb'] | 'metadata' | 'status' | 'finalizers' | 'effect'
  /** The object that was sent, or the target of the request. */
  object: KubeObject
  /** The object as it was observed. Undefined: it did not exist, or that is not known. */
  before: KubeObject | undefined
  /** The change of the primary: a merge patch of its status, or its labels, annotations or finalizers. */
  patch?: unknown
  /** Undefined: the object is gone. */
  after: KubeObject | undefined
  failed?: unknown
}

export interface TrailLap {
  input: RunInput
  returned?: unknown
  failed?: unknown
  writes: TrailWrite[]
}

/** A run that has ended. It refers to the objects of the run and copies nothing. */
export interface EndedRun {
  lease: Lease
  of: Reconciled
  startedAt: Date
  ms: number
  /** Undefined: the end of the run was not stored, because its lease was lost. */
  finish: Finish<Date> | undefined
  span: Span | undefined
  /** The revision of the function that answered last. */
  revision: string | undefined
  laps: readonly TrailLap[]
  logged: Logged | undefined
}

/** The requests and answers of a run, for its history. */
export class Trail {
  readonly laps: TrailLap[] = []
  /** Writes before the first call: a finalizer. */
  readonly #early: TrailWrite[] = []

  note(ask: Ask, answer: Answer): void {
    if (ask.do === 'call') {
      const returned =
        'failed' in answer ? { failed: answer.failed } : { returned: (answer as { returned?: Outcome }).returned }
      this.laps.push({ input: ask.input, ...returned, writes: this.#early.splice(0) })
      return
    }
    const writes = this.laps.at(-1)?.writes ?? this.#early
    writes.push(...writesOf(ask, answer))
  }
}

function writesOf(ask: Ask, answer: Answer): TrailWrite[] {
  if (ask.do === 'write') {
    const results = 'results' in answer ? answer.results : []
    return ask.writes.map((write, index) => writtenBy(write, results[index]))
  }
  if (ask.do === 'writeStatus' && 'result' in answer && answer.result === 'dropped') return []
  if (ask.do === 'writeStatus') return [{ verb: 'status', patch: ask.patch.status, ...ofPrimary(ask.object, answer) }]
  if (ask.do === 'writeMetadata')
    return [{ verb: 'metadata', patch: ask.write.object.metadata, ...ofPrimary(ask.object, answer) }]
  if (ask.do === 'writeFinalizers')
    return [{ verb: 'finalizers', patch: { finalizers: ask.finalizers }, ...ofPrimary(ask.object, answer) }]
  if (ask.do === 'delete') return [{ verb: 'delete', ...ofPrimary(ask.object, answer) }]
  if (ask.do !== 'perform' || ask.input.object === null) return []
  const failed = 'failed' in answer ? { failed: answer.failed } : {}
  return [{ verb: 'effect', object: ask.input.object, before: undefined, after: undefined, ...failed }]
}

function writtenBy(write: Write, result: Written | { failed: unknown } | undefined): TrailWrite {
  const before = write.verb === 'apply' ? write.observed : write.verb === 'create' ? undefined : write.object
  return { verb: write.verb, object: write.object, before, ...resultOf(result) }
}

function ofPrimary(object: KubeObject, answer: Answer): Omit<TrailWrite, 'verb'> {
  const result = 'failed' in answer ? answer : ((answer as { result?: unknown }).result as Written | undefined)
  return { object, before: object, ...resultOf(result) }
}

const resultOf = (result: Written | { failed: unknown } | undefined): Pick<TrailWrite, 'after' | 'failed'> =>
  result === undefined
    ? { after: undefined }
    : 'failed' in result
      ? { after: undefined, failed: result.failed }
      : { after: result.object }
