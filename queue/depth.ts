import type { Core } from './core.ts'
import type { KeyRecord, Lane } from './record.ts'
import type { Backlog, Depth } from './types.ts'

/*
 * Counted by the server, in a few small answers whatever the depth: cheap enough for every scrape of the metrics. On more
 * than one replica they may be a moment old.
 */

export async function depthOf({ js, names }: Core, fn: string): Promise<Depth> {
  const records = async (state: KeyRecord['state']) => (await js.count(names.stream, names.recordsIn(fn, state))).count
  const [tokens, running, waiting, parked] = await Promise.all([
    js.count(names.stream, names.all('work', fn)),
    records('running'),
    records('waiting'),
    records('parked'),
  ])
  return { queued: tokens.count, running, waiting, parked }
}

export async function backlogOf({ js, names, clock }: Core, fn: string): Promise<Backlog> {
  const tokens = (lane: Lane) => js.count(names.stream, names.tokensOf(fn, lane))
  const [high, low] = await Promise.all([tokens('high'), tokens('low')])
  const oldest = [high, low].flatMap((lane) => lane.oldest?.storedAt ?? [])
  return {
    lanes: { high: high.count, low: low.count },
    oldest: oldest.length === 0 ? undefined : clock.dateOf(Math.min(...oldest)),
  }
}
