import type { KubeObject, RunRecord } from '#contracts'
import type { StoredRun } from '#events'
import { type Condition, conditionsOf } from '#inspect'
import type { Tone } from './parts.ts'

/** A condition that has got another status. */
export interface Transition extends Condition {
  lastTransitionTime: string
  /** The status before. Undefined: the condition is new, or its status before is not recorded. */
  before?: string | undefined
  /** The recorded run that wrote it. */
  run?: number
}

/**
 * Returns the transitions that the object shows, and the earlier ones that recorded runs have written or seen. The
 * object itself has only the last one of each type.
 */
export function transitionsOf(object: KubeObject | undefined, runs: readonly StoredRun[]): Transition[] {
  const found = new Map<string, Transition>()
  const note = (one: Condition, more: Pick<Transition, 'before' | 'run'> = {}) => {
    const { type, status, lastTransitionTime } = one
    const id = `${type} ${status} ${lastTransitionTime}`
    if (lastTransitionTime !== undefined && !found.has(id)) found.set(id, { ...one, lastTransitionTime, ...more })
  }
  for (const { sequence, record } of runs.toSorted((a, b) => a.sequence - b.sequence)) {
    const seen = seenBy(record)
    const statuses = new Map(seen.map(({ type, status }) => [type, status]))
    for (const one of seen) note(one)
    for (const one of writtenBy(record)) {
      const { type, status, lastTransitionTime = '' } = one
      // A run writes the conditions that it has not changed too.
      note(one, isDuring(record, lastTransitionTime) ? { before: statuses.get(type), run: sequence } : {})
      statuses.set(type, status)
    }
  }
  for (const one of conditionsOf(object)) note(one)
  return [...found.values()]
}

/** `lastTransitionTime` has whole seconds. */
const isDuring = ({ startedAt, endedAt }: RunRecord, time: string): boolean =>
  Date.parse(time) > Date.parse(startedAt) - 1000 && Date.parse(time) <= Date.parse(endedAt)

function seenBy({ laps, objects = {} }: RunRecord): Condition[] {
  const version = laps[0]?.input.object
  return conditionsOf(version ? objects[version] : undefined)
}

function writtenBy({ laps }: RunRecord): Condition[] {
  const writes = laps.flatMap((lap) => lap.writes).filter(({ verb, error }) => verb === 'status' && error === undefined)
  return writes.flatMap(({ kind, name, patch }) =>
    conditionsOf({ apiVersion: '', kind, metadata: { name }, status: patch }),
  )
}

/** Status True of a condition is mostly good. Some conditions name a fault. */
export const toneOf = ({ type, status }: Pick<Condition, 'type' | 'status'>): Tone => {
  const isBadIfTrue = /Failed|Failure|Contested|Stalled|Degraded|Pressure/.test(type)
  return status === 'Unknown' ? 'warn' : (status === 'True') === isBadIfTrue ? 'bad' : 'good'
}
