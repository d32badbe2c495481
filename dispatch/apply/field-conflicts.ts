import type { EventReport, KubeObject } from '#contracts'
import { asTakenBack, called, RefusedError, type Taking } from '#reconcile'
import { METADATA_MANAGERS } from '#spec'
import { fieldsOfOthers, takenFrom } from '../errors.ts'

/**
 * Server-side apply without force first, so that fields that others have changed are known: they are taken back by a
 * second request, which also counts them, and users of the primary are told.
 */
export async function takingBack(
  { object, taking }: Applied,
  apply: (object: KubeObject, force: boolean) => Promise<KubeObject>,
  { fieldManager, mayTakeBack, report }: TakingBack,
): Promise<KubeObject> {
  try {
    return await apply(object, false)
  } catch (error) {
    const fields = fieldsOfOthers(error)
    if (fields.length === 0 || !mayTakeBack(fields)) throw error
    const message = `${called(object)}: taken back from others: ${fields.join('; ')}`
    report({ type: 'Warning', reason: 'FieldConflict', message })
    const taken = takenFrom(error, fieldManager)
    return apply(taking === undefined || taken.length === 0 ? object : asTakenBack(object, taking, taken), true)
  }
}

/** What is applied. Without `taking` nothing is counted. */
export interface Applied {
  object: KubeObject
  taking?: Taking | undefined
}

interface TakingBack {
  fieldManager: string
  mayTakeBack: (fields: string[]) => boolean
  report: (event: EventReport) => void
}

/** Server-side apply conflicts with labels or annotations of another reconciler. `field` is in the server's words. */
export const isOfReconciler = (field: string): boolean => field.includes(`conflict with "${METADATA_MANAGERS}`)

/** To take them back would begin a contest of two reconcilers without a pause and without an end. */
export const keptByReconcilers = (what: string, fields: readonly string[], cause: unknown): RefusedError =>
  new RefusedError(
    `${what}, because another reconciler has set these keys to other values: ${fields.join('; ')}. Have one of the functions return other keys`,
    { reason: 'FieldConflict', cause },
  )
