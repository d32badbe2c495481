import type { IndexReader } from './index-reader.ts'

const SHORTEST_PAUSE_MS = 1000
/** An index of objects that do not change costs one message in this time. */
const LONGEST_PAUSE_MS = 16_000

interface Keeping {
  /** How long after its last use by a run an index is kept, in milliseconds. */
  keptMs: number
  /** Called after each read. */
  refreshed: () => void
  /** Whether the index may lack a deletion already. To read on would hide that. */
  isOld: () => boolean
  /** Called once, when no run has used the index for `keptMs`, or when the index is old. */
  unused: () => void
}

/**
 * Reads what has changed in an index, in the background, until the index is out of use. A run then receives only what
 * has changed in the last seconds, however long ago the run before it was.
 */
export function keepUpToDate(reader: IndexReader, { keptMs, refreshed, isOld, unused }: Keeping): void {
  const { disposed } = reader
  let pauseMs = SHORTEST_PAUSE_MS
  let received = 0
  let timer: NodeJS.Timeout | undefined
  const refresh = async (): Promise<void> => {
    if (Date.now() - reader.usedAt >= keptMs || isOld()) return unused()
    // A request that the server refuses is refused to the next run too, which reports it.
    await reader.catchUp().then(refreshed, () => undefined)
    pauseMs = reader.received > received ? SHORTEST_PAUSE_MS : Math.min(2 * pauseMs, LONGEST_PAUSE_MS)
    received = reader.received
    start()
  }
  const start = (): void => {
    if (!disposed.aborted) timer = setTimeout(() => void refresh(), pauseMs).unref()
  }
  disposed.addEventListener('abort', () => clearTimeout(timer), { once: true })
  start()
}
