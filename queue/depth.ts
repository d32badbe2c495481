import type { Core } from './core.ts'
import type { Lane } from './record.ts'
import type { Depth } from './types.ts'

/** Read from the names of the subjects alone: cheap enough for every scrape of the metrics. */
export async function depthOf({ js, names }: Core, fn: string): Promise<Depth> {
  const tokens = async (lane: Lane) => {
    const { num_pending, num_ack_pending } = await js.admin.consumers.info(names.stream, names.consumer(fn, lane))
    return num_pending + num_ack_pending
  }
  const [high, low, info] = await Promise.all([
    tokens('high'),
    tokens('low'),
    js.admin.streams.info(names.stream, { subjects_filter: names.all('key', fn) }),
  ])
  const depth: Depth = { queued: high + low, running: 0, waiting: 0, parked: 0 }
  for (const subject of Object.keys(info.state.subjects ?? {})) {
    const place = names.placeOf(subject)
    const state = place?.kind === 'record' ? STATES[place.generation.charAt(0)] : undefined
    if (state) depth[state]++
  }
  return depth
}

/** First letter of a generation. */
const STATES: Record<string, 'running' | 'waiting' | 'parked'> = { r: 'running', w: 'waiting', p: 'parked' }
