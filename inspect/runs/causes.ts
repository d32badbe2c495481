import type { Cause, FieldChange, KubeObject, RunRecord } from '#contracts'
import { differences } from '#reconcile'

/** Why a run came: field by field where both versions of an object are recorded. `before`: the run recorded before it. */
export const causeChanges = (
  record: RunRecord,
  before: RunRecord | undefined,
): { cause: Cause; changes: readonly FieldChange[] }[] =>
  (record.causes ?? []).map((cause) => {
    const [old, young] = [versionsOf(before, cause.object).at(-1), versionsOf(record, cause.object)[0]]
    return { cause, changes: cause.is === 'changed' && old && young ? differences(old, young) : [] }
  })

/** Those that a run has seen, in that order. */
const versionsOf = (record: RunRecord | undefined, object: string): KubeObject[] =>
  Object.entries(record?.objects ?? {}).flatMap(([version, found]) => (version.startsWith(`${object}@`) ? [found] : []))
