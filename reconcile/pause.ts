import type { KubeObject } from '#contracts'
import { PAUSED_ANNOTATION } from '#spec'
import { conditionPatch, PAUSED, type StatusPatch } from './status.ts'

export const isPaused = ({ metadata }: KubeObject): boolean => metadata.annotations?.[PAUSED_ANNOTATION] === 'true'

/** Says on the object that it is paused: the only write that it gets meanwhile. */
export function pausePatch(object: KubeObject, now: Date): StatusPatch | undefined {
  const message = `nothing is written while annotation ${PAUSED_ANNOTATION} is "true"`
  return conditionPatch(object, { type: PAUSED, status: 'True', reason: 'PausedByAnnotation', message }, now)
}
