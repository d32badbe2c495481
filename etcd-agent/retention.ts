const STAMP = /^_v(\d{1,19})_(\d{4}-\d{2}-\d{2}-\d{2}:\d{2}:\d{2})$/

/** Returns `PATH_v12_2026-11-22-18:00:00`, in UTC, as the v1beta2 operator names its periodic backups. */
export function periodicKey(path: string, revision: number, time: Date): string {
  const stamp = time.toISOString().slice(0, 19).replace('T', '-')
  return `${path}_v${revision}_${stamp}`
}

/**
 * Returns the keys that exceed the limit, the oldest first. Only periodic backups of this path count, ordered by time,
 * then by revision as a number. `newest` counts, and is never among the results. The revision alone does not show the
 * age, because it may be lower after a restore.
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
