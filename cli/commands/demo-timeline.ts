import { clearInterval, setInterval } from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'
import { styleText } from 'node:util'
import type { BridgeObserver } from '#bridge'
import type { KubeObject } from '#contracts'
import type { RunObserver, RunStep } from '#dispatch'
import { keyOf, shownKey } from '#events'

export interface Recorder {
  bridge: BridgeObserver
  run: RunObserver
  /** Returns the id of the last observation of this object. */
  lastSight(kind: string, name: string): string | undefined
}

type Step<Name extends RunStep['step']> = Extract<RunStep, { step: Name }>

/** Ids of moments that other sources report or wait for too. */
export const idOf = {
  creation: (kind: string, name: string) => `${kind} ${name} created`,
  version: (kind: string, name: string, version: string | undefined) => `${kind} ${name} written as ${version}`,
}

const WRITES = {
  create: 'created',
  apply: 'applied',
  patch: 'patched',
  delete: 'deleted',
  setFields: 'set',
  giveBack: 'given back',
  evict: 'evicted',
  bind: 'bound',
  scale: 'scaled',
  approve: 'approved',
  deny: 'denied',
  metadata: 'labelled',
  status: 'written',
  finalizers: 'held',
}
const QUEUED = {
  token: 'a token in JetStream',
  record: 'a record in JetStream, run at once: a slot is free',
}

/**
 * Converts reports of the bridge and the dispatcher about one At into moments with their causes; ignores other reports.
 */
export function recordLifeOf(
  at: { namespace: string; name: string },
  tell: (moment: NamedMoment) => void,
  now: () => number,
): Recorder {
  const key = keyOf(at.namespace, at.name)
  const sights = new Map<string, string>()
  const count = { queued: 0, taken: 0, runs: 0, timers: 0 }
  let due: number | undefined

  const isAbout = ({ kind, metadata }: KubeObject) =>
    metadata.namespace === at.namespace &&
    ((kind === 'At' && metadata.name === at.name) ||
      metadata.ownerReferences?.some((owner) => owner.kind === 'At' && owner.name === at.name) === true)

  const addOfRun = (what: string, detail: string, more: Partial<NamedMoment> = {}) =>
    tell({ at: now(), what, detail, cause: `run ${count.runs}`, ...more })

  /** A key that is queued several times before a run begins causes one run. */
  function takenKey(): string {
    count.taken = Math.max(count.taken + 1, count.queued)
    return `key queued ${count.taken}`
  }

  function firedTimer(dueAt: number, queuedMs: number): string {
    const firedAt = Math.max(now() - queuedMs, dueAt)
    const id = `timer ${count.timers} fired`
    const detail = `${(firedAt - dueAt).toFixed(0)} ms after it was due`
    tell({ at: firedAt, what: 'timer fired', detail, id, cause: `timer ${count.timers}` })
    due = undefined
    return id
  }

  const steps: { [S in RunStep['step']]: (step: Step<S>) => void } = {
    started({ fired, queuedMs }) {
      const cause = fired && due !== undefined ? firedTimer(due, queuedMs) : takenKey()
      addOfRun('run started', 'the function decides on the state in EVENTS', { id: `run ${++count.runs}`, cause })
    },
    written({ verb, kind, name, resourceVersion, ms }) {
      const id = verb === 'create' ? idOf.creation(kind, name) : idOf.version(kind, name, resourceVersion)
      const what = verb === 'create' ? `${kind.toLowerCase()} created` : WRITES[verb]
      const detail = `${verb === 'status' ? 'status of ' : ''}${name}: asked for, answered ${ms.toFixed(1)} ms later`
      addOfRun(what, detail, { at: now() - ms, id })
    },
    dropped: () => addOfRun('overtaken', 'a status was not written: something newer happened'),
    armed({ at: until }) {
      due = until.getTime()
      addOfRun('timer armed', `for ${until.toISOString()}, in JetStream`, { id: `timer ${++count.timers}` })
    },
    timedOut: () => addOfRun('timed out', 'the function did not come back'),
    takenBack: () => addOfRun('taken back', 'another manager had changed a field that the function declares'),
    called: () => undefined,
    counted: () => undefined,
    measured: () => undefined,
    read: () => undefined,
    performed: () => undefined,
    ended: () => undefined,
    finished: () => undefined,
  }

  /** Only Fairlead changes the At here. Pods are changed by their node, after their last observed version. */
  function causeOfSight(verb: string, { kind, metadata: { name, resourceVersion } }: KubeObject): string | undefined {
    if (verb === 'added') return idOf.creation(kind, name)
    return verb === 'modified' && kind === 'At'
      ? idOf.version(kind, name, resourceVersion)
      : sights.get(`${kind} ${name}`)
  }

  return {
    bridge: {
      seen({ verb, object }) {
        if (!isAbout(object)) return
        const { kind, metadata } = object
        const phase = (object.status as { phase?: string } | undefined)?.phase
        const detail = `${kind} ${metadata.name} ${verb}${phase === undefined ? '' : `, ${phase}`}`
        const id = idOfSight(object)
        tell({ at: now(), what: 'event seen', detail, id, cause: causeOfSight(verb, object) })
        sights.set(`${kind} ${metadata.name}`, id)
      },
      enqueued({ reconciler, key: queued, by, object }) {
        if (queued !== key) return
        const moment = { at: now(), cause: object && idOfSight(object) }
        if (by === 'run')
          tell({ ...moment, what: 'run told', detail: `${reconciler} ${shownKey(key)}: it reads again before it ends` })
        else
          tell({
            ...moment,
            what: 'key queued',
            detail: `${reconciler} ${shownKey(key)}: ${QUEUED[by]}`,
            id: `key queued ${++count.queued}`,
          })
      },
    },
    run(step) {
      if (step.key === key) (steps[step.step] as (step: RunStep) => void)(step)
    },
    lastSight: (kind, name) => sights.get(`${kind} ${name}`),
  }
}

const idOfSight = ({ kind, metadata }: KubeObject): string =>
  `${kind} ${metadata.name} seen as ${metadata.resourceVersion}`

const DELAY_MS = 200
/** The time to wait for a cause. A cause outside of the demo is never reported. */
const CAUSE_TIMEOUT_MS = 2000

interface Moment {
  /** Milliseconds since the epoch. */
  at: number
  what: string
  detail: string
  /** The moment that caused this one; undefined if there is none, or if it was not reported. */
  cause: Moment | undefined
}

/** A moment as it is reported. `cause` is the `id` of another moment. */
export interface NamedMoment extends Omit<Moment, 'cause'> {
  id?: string
  cause?: string
}

interface PendingMoment extends Moment {
  cause: PendingMoment | undefined
  toldAt: number
  /** The id of a cause that has not been reported yet. */
  awaits: string | undefined
}

/** Orders moments by their causes. Each moment is delayed a while, and longer when its cause is not reported yet. */
class CausalOrder {
  readonly #now: () => number
  readonly #named = new Map<string, PendingMoment>()
  #held: PendingMoment[] = []

  constructor(now: () => number) {
    this.#now = now
  }

  add({ id, cause, ...named }: NamedMoment): void {
    const known = cause === undefined ? undefined : this.#named.get(cause)
    const moment = { ...named, cause: known, toldAt: this.#now(), awaits: known ? undefined : cause }
    if (id !== undefined) this.#explain(id, moment)
    this.#held.push(moment)
  }

  /** Returns the moments that need no further delay, in order. */
  takeDue(): Moment[] {
    const now = this.#now()
    const ordered = inOrder(this.#held)
    const first = ordered.findIndex((moment) => this.#isAwaiting(moment) || now - moment.toldAt < DELAY_MS)
    this.#held = first === -1 ? [] : ordered.slice(first)
    return first === -1 ? ordered : ordered.slice(0, first)
  }

  /** True if no moment waits for its cause. */
  get isExplained(): boolean {
    return !this.#held.some((moment) => this.#isAwaiting(moment))
  }

  takeAll(): Moment[] {
    const all = inOrder(this.#held)
    this.#held = []
    return all
  }

  #isAwaiting({ awaits, toldAt }: PendingMoment): boolean {
    return awaits !== undefined && this.#now() - toldAt < CAUSE_TIMEOUT_MS
  }

  /** Moves a moment that was reported before its cause after that cause. */
  #explain(id: string, cause: PendingMoment): void {
    this.#named.set(id, cause)
    for (const moment of this.#held) {
      if (moment.awaits !== id) continue
      moment.cause = cause
      moment.awaits = undefined
      cause.at = Math.min(cause.at, moment.at)
    }
  }
}

/** Orders by time, with every moment after its cause. */
function inOrder(moments: readonly PendingMoment[]): PendingMoment[] {
  const left = new Set(moments)
  const placed: PendingMoment[] = []
  const place = (moment: PendingMoment | undefined): void => {
    if (moment === undefined || !left.delete(moment)) return
    place(moment.cause)
    placed.push(moment)
  }
  for (const moment of moments.toSorted((one, other) => one.at - other.at)) place(moment)
  return placed
}

export interface Painter {
  (style: 'dim' | 'bold' | 'green' | 'cyan', text: string): string
}

export const plain: Painter = (_style, text) => text
export const coloured: Painter = (style, text) => styleText(style, text, { validateStream: false })

const seconds = (ms: number) => `${(ms / 1000).toFixed(3).padStart(9)} s`
const since = (ms: number) =>
  (ms < 10_000 ? `+${ms.toFixed(ms < 100 ? 1 : 0)} ms` : `+${(ms / 1000).toFixed(1)} s`).padStart(11)

const heading = (paint: Painter): string => paint('dim', `${'time'.padStart(11)}  ${'since cause'.padStart(11)}  what`)

/** The column of the details. */
const DETAIL = 41

/** Formats one line: the time, the delay after its cause, and the event. Its detail continues below, within `columns`. */
function formatMoment(moment: Moment, start: number, paint: Painter, columns = Infinity): string {
  const delay = moment.cause === undefined ? ''.padStart(11) : since(moment.at - moment.cause.at)
  const detail = folded(moment.detail, Math.max(columns - DETAIL, 20)).join(`\n${' '.repeat(DETAIL)}`)
  return `${seconds(moment.at - start)}  ${paint('dim', delay)}  ${paint('cyan', moment.what.padEnd(13))}  ${detail}`
}

/** Returns the lines of a text that is broken between words. */
function folded(text: string, width: number): string[] {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const longer = `${lines.at(-1)} ${word}`
    if (lines.length === 0 || longer.length > width) lines.push(word)
    else lines[lines.length - 1] = longer
  }
  return lines
}

const SHOWN_EVERY_MS = 50

export interface Timeline {
  /** Adds a moment. Ignored before begin() and after end(). */
  add(told: NamedMoment): void
  begin(): void
  /** Resolves when every added moment has its cause, or no longer waits for it. */
  explained(): Promise<void>
  /** Prints the moments that were still delayed. */
  end(): void
}

/** Prints one line for each moment in causal order, shortly after it happened. */
export function timelineOn(
  out: NodeJS.WritableStream & { columns?: number },
  paint: Painter,
  now: () => number,
): Timeline {
  const held = new CausalOrder(now)
  let start: number | undefined
  let timer: NodeJS.Timeout | undefined
  const show = (moments: readonly Moment[]) => {
    for (const moment of moments) out.write(`${formatMoment(moment, start ?? 0, paint, out.columns)}\n`)
  }
  return {
    add(told) {
      if (start !== undefined) held.add(told)
    },
    begin() {
      out.write(`\n${heading(paint)}\n`)
      start = now()
      timer = setInterval(() => show(held.takeDue()), SHOWN_EVERY_MS)
    },
    async explained() {
      while (!held.isExplained) await sleep(SHOWN_EVERY_MS)
    },
    end() {
      clearInterval(timer)
      show(held.takeAll())
      start = undefined
    },
  }
}
