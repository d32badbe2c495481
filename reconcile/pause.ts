import type { KubeObject } from '#contracts'
import { PAUSED_ANNOTATION } from '#spec'
import { conditionPatch, PAUSED, type StatusPatch } from './status.ts'

export const isPaused = ({ metadata }: KubeObject): boolean => metadata.annotations?.[PAUSED_ANNOTATION] === 'true'

/** Returns the patch that reports the pause on the object. It is the only write to the object during the pause. */
export function pausePatch(object: KubeObject, now: Date): StatusPatch | undefined {
  const message = `nothing is written while annotation ${PAUSED_ANNOTATION} is "true"`
  return conditionPatch(object, { type: PAUSED, status: 'True', reason: 'PausedByAnnotation', message }, now)
}
