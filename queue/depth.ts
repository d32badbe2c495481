import type { Core } from './core.ts'
import type { Lane } from './record.ts'
import type { Backlog, Depth } from './types.ts'

/*
 * The server counts and sends a few small answers, whatever the depth, so every scrape of the metrics can ask. With
 * more than one replica, the counts may be a moment old.
 */

export async function depthOf({ js, names }: Core, reconciler: string): Promise<Depth> {
  const count = async (subject: string) => (await js.count(names.stream, subject)).count
  const [queued, records, running, parked] = await Promise.all([
    count(names.all('work', reconciler)),
    count(names.all('key', reconciler)),
    count(names.recordsIn(reconciler, 'running')),
    count(names.recordsIn(reconciler, 'parked')),
  ])
  return { queued, running, waiting: Math.max(0, records - running - parked), parked }
}

export async function backlogOf({ js, names, clock }: Core, reconciler: string): Promise<Backlog> {
  const tokens = (lane: Lane) => js.count(names.stream, names.tokensOf(reconciler, lane))
  const [high, low] = await Promise.all([tokens('high'), tokens('low')])
  const oldest = [high, low].flatMap((lane) => lane.oldest?.storedAt ?? [])
  return {
    lanes: { high: high.count, low: low.count },
    oldest: oldest.length === 0 ? undefined : clock.dateOf(Math.min(...oldest)),
  }
}
