import type { FunctionInput, KubeObject, Outcome, RunInput, RunLog, WriteRecord } from '#contracts'
import type { Span } from '#events'
import type { Finish, Lease } from '#queue'
import type { Acted, Answer, Ask, MetricChange, Reconciled, Write, Written } from '#reconcile'

/** One request of a run, and its result. */
export interface TrailWrite {
  verb: WriteRecord['verb']
  /** The object that was sent, or the target of the request. */
  object: KubeObject
  /** The object as it was observed. Undefined: it did not exist, or that is not known. */
  before: KubeObject | undefined
  /** The change of the primary: a merge patch of its status, or its labels, annotations or finalizers. */
  patch?: unknown
  /** Undefined: the object is gone. */
  after: KubeObject | undefined
  /** The object already was as the request asked for. */
  isUnchanged?: boolean
  failed?: unknown
}

export interface TrailRound {
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
  /** Why the process of the run ends before the run. */
  lost?: string
  span: Span | undefined
  /** The revision of the function that answered last. */
  revision: string | undefined
  rounds: readonly TrailRound[]
  logged: Logged | undefined
}

/** The requests and answers of a run, for its history. */
export class Trail {
  readonly rounds: TrailRound[] = []
  /** Writes before the first call: a finalizer. */
  readonly #early: TrailWrite[] = []

  note(ask: Ask, answer: Answer): void {
    if (ask.do === 'call') {
      const returned =
        'failed' in answer ? { failed: answer.failed } : { returned: (answer as { returned?: Outcome }).returned }
      this.rounds.push({ input: ask.input, ...returned, writes: this.#early.splice(0) })
      return
    }
    const writes = this.rounds.at(-1)?.writes ?? this.#early
    writes.push(...writesOf(ask, answer))
  }
}

function writesOf(ask: Ask, answer: Answer): TrailWrite[] {
  if (ask.do === 'write') {
    const results = 'did' in answer && answer.did === 'write' ? answer.results : []
    return ask.writes.map((write, index) => writtenBy(write, results[index]))
  }
  if (ask.do === 'writeFields') {
    const results = 'did' in answer && answer.did === 'writeFields' ? answer.results : []
    return ask.writes.map(({ verb, object, observed }, index) => ({
      verb,
      object,
      before: observed,
      ...resultOf(observed, results[index]),
    }))
  }
  if (ask.do === 'act') {
    const results = 'did' in answer && answer.did === 'act' ? answer.results : []
    return ask.acts.map(({ verb, object }, index) => ({ verb, object, ...actedBy(results[index]) }))
  }
  if (ask.do === 'writeRecord')
    return [
      { verb: 'metadata', patch: { annotations: { [ask.annotation]: ask.value } }, ...ofPrimary(ask.object, answer) },
    ]
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

/** An act that waits is told like a refused one. The object after an act is not known: the watch reports it. */
function actedBy(result: Acted | { failed: unknown } = {}): Omit<TrailWrite, 'verb' | 'object'> {
  const unknown = { before: undefined, after: undefined }
  if ('failed' in result) return { ...unknown, failed: result.failed }
  if (result.waits !== undefined) return { ...unknown, failed: new Error(`waits: ${result.waits.message}`) }
  return { ...unknown, ...(result.isPast && { isUnchanged: true }) }
}

function writtenBy(write: Write, result: Written | { failed: unknown } | undefined): TrailWrite {
  const before = write.verb === 'apply' ? write.observed : write.verb === 'create' ? undefined : write.object
  return { verb: write.verb, object: write.object, before, ...resultOf(before, result) }
}

function ofPrimary(object: KubeObject, answer: Answer): Omit<TrailWrite, 'verb'> {
  const result = 'failed' in answer ? answer : ((answer as { result?: unknown }).result as Written | undefined)
  return { object, before: object, ...resultOf(object, result) }
}

function resultOf(
  before: KubeObject | undefined,
  result: Written | { failed: unknown } | undefined,
): Pick<TrailWrite, 'after' | 'isUnchanged' | 'failed'> {
  if (result === undefined) return { after: undefined }
  if ('failed' in result) return { after: undefined, failed: result.failed }
  const { object: after, isFound } = result
  const version = after?.metadata.resourceVersion
  const isSame = version !== undefined && version === before?.metadata.resourceVersion
  return { after, ...((isFound || isSame) && { isUnchanged: true }) }
}

/** One line that a function logged, as it was at that moment. */
export interface RunLine {
  at: Date
  level: 'info' | 'warn' | 'error'
  message: string
  /** JSON text. Undefined: the fields are too large, or are not JSON. */
  fields: string | undefined
}

/** The lines of a run. */
export interface Logged {
  lines: readonly RunLine[]
  /** The number of lines that were not kept. */
  omitted: number
  /** The inputs of the calls that have logged. Lines may quote their contents. */
  inputs: ReadonlySet<FunctionInput>
}

/** Limits for the lines of level info, and again for warnings and errors, so that many of one kind displace no other. */
const MOST_LINES = 50
const MOST_CHARS = 16 * 1024
const MOST_CHARS_OF_A_LINE = 4 * 1024

/**
 * Keeps the first lines that the functions of one run log, and passes each line on. Later lines are only counted, so
 * the cost of a run that logs without end is bounded.
 */
export class RunLines implements Logged {
  readonly lines: RunLine[] = []
  readonly inputs = new Set<FunctionInput>()
  omitted = 0
  readonly #rooms = {
    info: { lines: MOST_LINES, chars: MOST_CHARS },
    problems: { lines: MOST_LINES, chars: MOST_CHARS },
  }
  readonly #now: () => Date

  constructor(now: () => Date) {
    this.#now = now
  }

  /** Returns the log for one call of the function. Debug lines are passed on, and not kept. */
  around(log: RunLog, input: FunctionInput): RunLog {
    const kept =
      (level: RunLine['level']): RunLog[typeof level] =>
      (fields, message) => {
        log[level](fields, message)
        this.#keep(level, fields, message, input)
      }
    return {
      debug: (fields, message) => log.debug(fields, message),
      info: kept('info'),
      warn: kept('warn'),
      error: kept('error'),
    }
  }

  #keep(level: RunLine['level'], given: object, message: string, input: FunctionInput): void {
    const room = level === 'info' ? this.#rooms.info : this.#rooms.problems
    const most = Math.min(room.chars, MOST_CHARS_OF_A_LINE)
    if (room.lines === 0 || typeof message !== 'string' || message.length > most) {
      this.omitted++
      return
    }
    const fields = jsonWithin(given, most - message.length)
    room.lines--
    room.chars -= message.length + (fields?.length ?? 0)
    this.inputs.add(input)
    this.lines.push({ at: this.#now(), level, message, fields })
  }
}

/** Returns the value as JSON; undefined if that is longer, or impossible. Does not walk a large value to its end. */
function jsonWithin(value: object, most: number): string | undefined {
  let room = most
  try {
    const text = JSON.stringify({ ...value }, (name, one: unknown) => {
      room -= name.length + (typeof one === 'string' ? one.length : 1)
      if (room < 0) throw new RangeError('too large')
      if (one instanceof Error) return { type: one.name, message: one.message }
      return typeof one === 'bigint' ? String(one) : one
    })
    return text.length > most ? undefined : text
  } catch {
    return undefined
  }
}

/** The steps of a run, in order, for timelines, metrics and logs. */
export type RunStep = { reconciler: string; key: string } & Partial<Span> &
  (
    | {
        step: 'started'
        /** The number of failed runs of this key since the last success. */
        attempt: number
        /** A timer fired: requeueAt, requeueAfterSeconds or backoff. */
        fired: boolean
        /** Why the key was queued, as far as it is known. */
        causes?: readonly string[]
        /** The time since the key was queued. */
        queuedMs: number
        /** After this time another run of the key may begin, unless the lease is renewed. */
        leaseUntil: Date
      }
    | {
        step: 'written'
        verb: Exclude<TrailWrite['verb'], 'effect'>
        /** The resource, e.g. `pods.v1`. */
        resource: string
        kind: string
        namespace: string | undefined
        name: string
        /** The version after the write. Undefined if the object is gone. */
        resourceVersion: string | undefined
        /** The duration of the request, without the wait for its turn. */
        ms: number
      }
    /** Fields that other managers had changed were set back. `isContested`: the managers fight over the fields. */
    | { step: 'takenBack'; isContested: boolean }
    /** The function was called to read its external system. */
    | { step: 'read'; result: 'success' | 'error'; ms: number }
    /** The function was called to perform an effect. `kind`: the kind of the effect. */
    | { step: 'performed'; kind: string; result: 'success' | 'error'; ms: number }
    /** The function was called: in this process, or over HTTP. */
    | { step: 'called'; result: 'success' | 'error'; ms: number }
    /** The function has let a counter grow. */
    | { step: 'counted'; change: MetricChange }
    /** All gauges of the object, as the function has returned them last. */
    | { step: 'measured'; changes: readonly MetricChange[] }
    /** A status was not sent, because the object changed before the turn of the request. The function decides again. */
    | { step: 'dropped' }
    /** The run stopped waiting for the function. */
    | { step: 'timedOut' }
    | { step: 'armed'; at: Date; why: 'requeue' | 'error' }
    /** The function and its writes have ended. The end of the run is not stored yet. */
    | {
        step: 'ended'
        /** The run has written nothing after this time, and another run of the key may have begun. */
        leaseUntil: Date
      }
    | {
        step: 'finished'
        /** The result: controller-runtime's names, and `terminal` and `fenced`. */
        result: 'success' | 'requeue_after' | 'error' | 'terminal' | 'fenced'
        ms: number
        message: string | undefined
      }
  )

export type RunObserver = (step: RunStep) => void
