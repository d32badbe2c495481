import type { EventReport, KubeObject, Performed, ResourceRef, RunInput } from '#contracts'
import type { Due, Finish } from '#queue/terms'
import { identityOf, type ReconcilerSpec, selectionOf } from '#spec'
import type { FieldsProgress } from './fields.ts'
import { changesOf, type MetricChange } from './metrics.ts'
import { MAX_STATE_BYTES, type PlainOutcome } from './outcome.ts'
import type { RefusedWrite } from './refusals.ts'
import type { Contents } from './scrub.ts'
import type { Answer, AnswerTo, Ask, Failed, Note, Observed } from './vocabulary.ts'
import type { World } from './world.ts'

/** The number of passes in one run. A conflict, or a change during the run, begins another pass. */
const MAX_PASSES = 5

/** A Reconciler whose function is called. */
export interface Reconciled {
  name: string
  /** The identity in marks, finalizers and field managers. */
  identity: string
  spec: ReconcilerSpec
  /** Whether the object is in the Reconciler's namespaces and matches its selectors. */
  selects: (object: KubeObject) => boolean
  /**
   * Whether only references to objects of the resource are stored in EVENTS. The contents of these objects are
   * confidential.
   */
  isReferenceOnly: (resource: ResourceRef) => boolean
  /** Whether no other Reconciler may write the status of its objects. */
  isAlone: () => boolean
  /** The limit of what a run reads, and of what the function returns, in bytes of JSON. */
  maxStateBytes: number
}

/** Throws a SelectorError if a selector of the specification is not valid. */
export const reconciled = (
  name: string,
  spec: ReconcilerSpec,
  isReferenceOnly: Reconciled['isReferenceOnly'],
  maxStateBytes = MAX_STATE_BYTES,
): Reconciled => ({
  name,
  identity: identityOf(name, spec),
  spec,
  selects: selectionOf(spec.for),
  isReferenceOnly,
  isAlone: () => true,
  maxStateBytes,
})

/** What a driver gives a run at its start. */
export interface RunStart {
  /** The number of failed runs of the key since the last success. */
  attempt: number
  /** Runs of the key have ended their process, and none has succeeded since. */
  suspect?: boolean
  /** A random number of this run, 0 ≤ x < 1. It spreads the backoff. */
  random: number
  /** The cluster of the objects. Left out: the process serves only one. */
  cluster?: RunInput['cluster'] | undefined
  /** Receives the reports of the run. */
  tell: (note: Note) => void
}

/** What a run knows from one pass to the next. */
export interface Run extends Readonly<RunStart> {
  readonly of: Reconciled
  /** The number of passes that have begun. */
  passes: number
  /** The Events reported in this run, as JSON. */
  readonly told: Set<string>
  /** The observed objects of confidential kinds. */
  readonly confidential: Contents[]
  /** The last observation. */
  seen?: World
  /** The effects of this run in order, including those that failed. */
  readonly performed: PerformedEffect[]
  /** The last call and its outcome. */
  called?: { input: RunInput; outcome: PlainOutcome }
}

/** An effect of this run. The run ends with `failure` if the function asks for the same effect again. */
export interface PerformedEffect extends Performed {
  failure?: Failed
}

/** One pass of a run. It begins with an observation, and ends with the run or with the next pass. */
export interface Pass extends Omit<Observed, 'unread'> {
  readonly run: Run
  /** The objects exceed the driver's limit, and the function is not called. */
  unread: Error | undefined
  /** The state of the external system after the last observation. */
  external: { state: unknown } | undefined
  /** The refused writes of this pass. None is sent again, and the function's input has all of them. */
  refused: readonly RefusedWrite[]
  /** What this pass has done with fields of others. */
  progress: FieldsProgress
  /** The refused writes that the last outcome still requires. */
  unresolved: readonly RefusedWrite[]
  /** When the last outcome asks to run again. Undefined while the function decides: it may throw. */
  requeue?: Due | undefined
}

/** How a pass ends: with another pass, or with the end of the run. */
export type End = 'again' | { finish: Finish; mayPassAgain: boolean }

/** Ends the run, unless there was a change since the pass began: that may begin another pass. */
export const ends = (run: Run, finish: Finish): End => ({ finish, mayPassAgain: !isLastPass(run) })

/** Ends the run, whatever has changed meanwhile. */
export const endsNow = (finish: Finish): End => ({ finish, mayPassAgain: false })

export const isLastPass = ({ passes }: Run): boolean => passes >= MAX_PASSES

/** Thrown in a pass that fails. Without `failure` only its refused writes are the cause. */
export class FailedPass extends Error {
  override readonly name = 'FailedPass'
  readonly failure: Failed | undefined
  constructor(failure?: Failed) {
    super('the pass has failed')
    this.failure = failure
  }
}

export const failed = (error: unknown): FailedPass => new FailedPass({ failed: error })

/** A part of a run. It yields what it asks of the driver, and takes the answer. */
export type Asking<Result> = Generator<Ask, Result, Answer>

/** Asks the driver, and returns its answer. A failure fails the pass. */
export function* ask<Request extends Ask>(request: Request): Asking<AnswerTo<Request>> {
  const answer = answerTo(request, yield request)
  if ('failed' in answer) throw new FailedPass(answer)
  return answer
}

/** Asks the driver, and returns its answer or the failure. */
export function* attempt<Request extends Ask>(request: Request): Asking<AnswerTo<Request> | Failed> {
  return answerTo(request, yield request)
}

function answerTo<Request extends Ask>(request: Request, answer: Answer): AnswerTo<Request> | Failed {
  if ('did' in answer && answer.did !== request.do)
    throw new TypeError(`the driver answered ${answer.did} to ${request.do}`)
  return answer as AnswerTo<Request> | Failed
}

/** Reports what the outcome tells, beside what it writes. */
export function tellReports(
  pass: Pass,
  { events, counters }: { events: readonly EventReport[]; counters: readonly MetricChange[] },
): void {
  tellEvents(pass, events)
  for (const change of counters) tellOnce(pass, `counter ${JSON.stringify(change)}`, { note: 'counter', change })
}

/** Reports each Event once in a run, however often the function returns it. */
export function tellEvents({ run, world }: Pass, events: readonly EventReport[]): void {
  const { object } = world
  for (const event of events) tellOnce({ run }, JSON.stringify(event), { note: 'event', object, event })
}

/** Reports the gauges of the last outcome. An object has none if the function does not decide on it any more. */
export function tellGauges(run: Run, pass: Pass | undefined, { kind }: Finish): void {
  const { spec } = run.of
  const outcome = pass && run.called?.outcome
  // A run that has not read the external system yet goes on later.
  const isUndecided = pass !== undefined && outcome === undefined && kind === 'requeue'
  if (isUndecided || !spec.metrics?.some(({ type }) => type === 'Gauge')) return
  run.tell({ note: 'gauges', changes: outcome === undefined ? [] : changesOf(spec, outcome, 'Gauge') })
}

function tellOnce({ run }: Pick<Pass, 'run'>, text: string, note: Note): void {
  if (run.told.has(text)) return
  run.told.add(text)
  run.tell(note)
}

/** Notes a write that has no effect if it is repeated. */
export function noteNoOp(pass: Pass, target: string, value: string): void {
  pass.noOps = { ...pass.noOps, [target]: value }
  pass.run.tell({ note: 'noOp', target, value })
}
