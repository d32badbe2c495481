const STAMP = /^_v(\d{1,19})_(\d{4}-\d{2}-\d{2}-\d{2}:\d{2}:\d{2})$/

/** Returns `PATH_v12_2026-11-22-18:00:00`, in UTC, as the v1beta2 operator names its periodic backups. */
export function periodicKey(path: string, revision: number, time: Date): string {
  const stamp = time.toISOString().slice(0, 19).replace('T', '-')
  return `${path}_v${revision}_${stamp}`
}

interface Surplus {
  /** The keys that exceed the limit, the oldest first. */
  old: string[]
  /** The keys whose times are after the time of the newest backup: the clock of a node was wrong, or is wrong now. */
  ahead: string[]
}

/**
 * Returns the keys that exceed the limit. Only periodic backups of this path count, ordered by time, then by revision as
 * a number. `newest` counts, and is never among the results. A backup with a time after it neither counts nor is old, so
 * it pushes out no other. The revision alone does not show the age, because it may be lower after a restore.
 */
export function surplus(keys: readonly string[], path: string, most: number, newest: string): Surplus {
  const ours = keys.flatMap((key) => stamped(key, path) ?? [])
  const now = stamped(newest, path)?.time ?? ''
  const counted = ours.filter(({ key, time }) => key !== newest && time <= now)
  counted.sort((one, other) => one.time.localeCompare(other.time) || Number(one.revision - other.revision))
  const old = counted.slice(0, Math.max(0, counted.length - (most - 1)))
  return { old: old.map(({ key }) => key), ahead: ours.flatMap(({ key, time }) => (time > now ? key : [])) }
}

function stamped(key: string, path: string): { key: string; revision: bigint; time: string } | undefined {
  if (!key.startsWith(path)) return undefined
  const [, revision, time] = STAMP.exec(key.slice(path.length)) ?? []
  return revision === undefined || time === undefined ? undefined : { key, revision: BigInt(revision), time }
}
