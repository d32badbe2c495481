import type { Cause, FieldChange, KubeObject, RunRecord } from '#contracts'
import { differences } from '#reconcile'

/**
 * Returns the causes of a run, field by field if both versions of an object are recorded. `before`: the previous
 * recorded run of the object.
 */
export const causeChanges = (
  record: RunRecord,
  before: RunRecord | undefined,
): { cause: Cause; changes: readonly FieldChange[] }[] =>
  (record.causes ?? []).map((cause) => {
    const [old, young] = [versionsOf(before, cause.object).at(-1), versionsOf(record, cause.object)[0]]
    return { cause, changes: cause.is === 'changed' && old && young ? differences(old, young) : [] }
  })

/** Returns the versions of the object that a run has seen, in that order. */
const versionsOf = (record: RunRecord | undefined, object: string): KubeObject[] =>
  Object.entries(record?.objects ?? {}).flatMap(([version, found]) => (version.startsWith(`${object}@`) ? [found] : []))
