import { performance } from 'node:perf_hooks'
import { memoryUsage } from 'node:process'

/** The process is idle if it spent less than IDLE_BELOW of this interval in code. */
const LOOK_EVERY_MS = 10_000
const IDLE_BELOW = 0.05
/** The growth that justifies the pause of a collection: both in bytes and as a part of the resident memory. */
const WORTH = { bytes: 64 * 2 ** 20, part: 0.25 }

export interface ResidentMemory {
  now: number
  /** The resident memory after the last full collection; 0 before the first one, since a start leaves much garbage. */
  before: number
}

export const isWorthCollecting = ({ now, before }: ResidentMemory): boolean =>
  now - before >= Math.max(WORTH.bytes, before * WORTH.part)

/**
 * Releases the memory of the start, and of each burst, once the process is idle. Node.js 24.21 never releases it: V8
 * releases memory only when its embedder reports idle time, and Node.js does not. The collection blocks the process for
 * 0.1 to 0.3 s with a heap of some hundred MiB, once after the start and after each burst.
 */
export function releaseMemoryWhenIdle(everyMs = LOOK_EVERY_MS): Disposable {
  let busy = performance.eventLoopUtilization()
  let before = 0
  const look = async () => {
    const { utilization } = performance.eventLoopUtilization(busy)
    busy = performance.eventLoopUtilization()
    if (utilization > IDLE_BELOW) return
    if (!isWorthCollecting({ now: memoryUsage.rss(), before })) return
    await collectAll()
    before = memoryUsage.rss()
  }
  const stop = () => clearInterval(timer)
  // Builds of Node.js without an inspector do not release memory.
  const timer = setInterval(() => void look().catch(stop), everyMs).unref()
  return { [Symbol.dispose]: stop }
}

/** Collects as for a heap snapshot, which also frees memory that V8 keeps for later use. */
async function collectAll(): Promise<void> {
  const { Session } = await import('node:inspector/promises')
  const session = new Session()
  session.connect()
  try {
    await session.post('HeapProfiler.collectGarbage')
  } finally {
    session.disconnect()
  }
}
