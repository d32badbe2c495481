import type { EventReport, KubeObject } from '#contracts'
import { asTakenBack, called, RefusedError, type Taking } from '#reconcile'
import { METADATA_MANAGERS } from '#spec'
import { fieldsOfOthers, takenFrom } from '../errors.ts'

/**
 * Applies without force first, to find the fields that other managers have changed. A second request with force takes
 * these fields back and counts them. An Event on the primary reports them.
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

/** The object to apply. Without `taking` no fields are counted. */
export interface Applied {
  object: KubeObject
  taking?: Taking | undefined
}

interface TakingBack {
  fieldManager: string
  mayTakeBack: (fields: string[]) => boolean
  report: (event: EventReport) => void
}

/**
 * Whether server-side apply conflicts with labels or annotations of another reconciler. `field` is the server's text.
 */
export const isOfReconciler = (field: string): boolean => field.includes(`conflict with "${METADATA_MANAGERS}`)

/**
 * Returns the refusal of labels and annotations that another reconciler keeps. To take them back would make two
 * reconcilers overwrite each other without a pause and without an end.
 */
export const keptByReconcilers = (what: string, fields: readonly string[], cause: unknown): RefusedError =>
  new RefusedError(
    `${what}, because another reconciler has set these keys to other values: ${fields.join('; ')}. Have one of the functions return other keys`,
    { reason: 'FieldConflict', cause },
  )
