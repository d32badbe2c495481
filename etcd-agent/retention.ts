const STAMP = /^_v(\d{1,19})_(\d{4}-\d{2}-\d{2}-\d{2}:\d{2}:\d{2})$/

/** `PATH_v12_2026-11-22-18:00:00`, in UTC, as the operator of v1beta2 names its periodic backups. */
export function periodicKey(path: string, revision: number, time: Date): string {
  const stamp = time.toISOString().slice(0, 19).replace('T', '-')
  return `${path}_v${revision}_${stamp}`
}

/**
 * Those of the keys that are too many, the oldest first: of periodic backups of this path alone, by time, then by revision
 * as a number. `newest` counts, and is never among them. A revision alone does not tell the age: after a restore it may be
 * lower than before.
 */
export function surplus(keys: readonly string[], path: string, most: number, newest: string): string[] {
  const ours = keys.flatMap((key) => {
    if (!key.startsWith(path) || key === newest) return []
    const [, revision, time] = STAMP.exec(key.slice(path.length)) ?? []
    return revision === undefined || time === undefined ? [] : [{ key, revision: BigInt(revision), time }]
  })
  ours.sort((one, other) => one.time.localeCompare(other.time) || Number(one.revision - other.revision))
  return ours.slice(0, Math.max(0, ours.length - (most - 1))).map(({ key }) => key)
}
