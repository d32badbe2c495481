import type { BridgeObserver } from '#bridge'
import type { KubeObject } from '#contracts'
import type { RunObserver, RunStep } from '#dispatch'
import { keyOf, shownKey } from '#events'
import type { NamedMoment } from './causal-order.ts'

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
