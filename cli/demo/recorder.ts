import type { BridgeObserver } from '#bridge'
import type { KubeObject } from '#contracts'
import type { RunObserver, RunStep } from '#dispatch'
import type { Moment } from './timeline.ts'

export interface Recorder {
  bridge: BridgeObserver
  run: RunObserver
  /** Adds what the demo itself did or saw. */
  note(what: string, detail: string): Moment
}

interface StatusOfAt {
  phase?: string
}

/** Turns what bridge and dispatcher report about one At, and nothing else, into moments with their causes. */
export function recordLifeOf(at: { namespace: string; name: string }, onMoment: (moment: Moment) => void): Recorder {
  const key = `${at.namespace}.${at.name}`
  let last: Moment | undefined
  let armed: { until: Date; by: Moment } | undefined

  const add = (what: string, detail: string, cause: Moment | undefined = last): Moment => {
    const moment = { at: performance.timeOrigin + performance.now(), what, detail, cause }
    onMoment(moment)
    last = moment
    return moment
  }
  const isAbout = ({ kind, metadata }: KubeObject) =>
    metadata.namespace === at.namespace &&
    ((kind === 'At' && metadata.name === at.name) ||
      metadata.ownerReferences?.some((owner) => owner.kind === 'At' && owner.name === at.name) === true)

  const steps: { [S in RunStep['step']]: (step: Extract<RunStep, { step: S }>) => void } = {
    started: ({ fired }) => {
      if (!fired || !armed) return void add('run started', 'the function decides on the state in EVENTS')
      const late = performance.timeOrigin + performance.now() - armed.until.getTime()
      add('timer fired', `${late.toFixed(0)} ms after it was due`, armed.by)
      armed = undefined
      add('run started', 'the function decides on the state in EVENTS')
    },
    written: ({ verb, kind, name, ms }) => {
      const what = { create: 'created', apply: 'applied', delete: 'deleted', status: 'written', finalizers: 'held' }[
        verb
      ]
      add(
        verb === 'create' ? `${kind.toLowerCase()} ${what}` : what,
        `${verb === 'status' ? `status of ${name}` : name} (${ms.toFixed(1)} ms at the API server)`,
      )
    },
    dropped: () => add('overtaken', 'a status was not written: something newer happened'),
    armed: ({ at: until }) => {
      armed = { until, by: add('timer armed', `for ${until.toISOString()}, in JetStream`) }
    },
    timedOut: () => add('timed out', 'the function did not come back'),
    ended: () => undefined,
    finished: () => undefined,
  }

  return {
    note: (what, detail) => add(what, detail),
    bridge: {
      seen: ({ verb, object }) => {
        if (!isAbout(object)) return
        const phase = (object.status as StatusOfAt | undefined)?.phase
        add('event seen', `${object.kind} ${object.metadata.name} ${verb}${phase === undefined ? '' : `, ${phase}`}`)
      },
      enqueued: (entry) => {
        if (entry.key === key) add('key queued', `${entry.fn} ${entry.key}`)
      },
    },
    run: (step) => {
      if (step.key !== key) return
      ;(steps[step.step] as (step: RunStep) => void)(step)
    },
  }
}
