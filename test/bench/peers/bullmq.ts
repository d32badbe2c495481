import { DelayedError, Queue, Worker } from 'bullmq'
import { LEASE_MS, type Peer, SLOTS } from './peer.ts'

/**
 * BullMQ as its documentation advises for one job per key: deduplicated while it waits, run at once if it was
 * delayed, and the latest kept for one more run while it is active. Finished jobs are removed, commands of one turn go to Redis together.
 */
export async function openBullmq(url: string, prefix: string): Promise<Peer> {
  const { hostname: host, port } = new URL(url)
  const connection = { host, port: Number(port), maxRetriesPerRequest: null, enableAutoPipelining: true }
  const queue = new Queue(prefix, { connection })
  await queue.waitUntilReady()
  let worker: Worker | undefined
  return {
    async enqueue(key) {
      const deduplication = { id: key, keepLastIfActive: true, reschedule: true }
      await queue.add('run', { key }, { deduplication, removeOnComplete: true, removeOnFail: true })
    },
    async serve(work) {
      worker = new Worker<{ key: string }>(
        prefix,
        async (job, token) => {
          const waitMs = await work(job.data.key)
          if (waitMs === undefined) return
          await job.moveToDelayed(Date.now() + waitMs, token)
          throw new DelayedError()
        },
        { connection, concurrency: SLOTS, lockDuration: LEASE_MS, stalledInterval: LEASE_MS, maxStalledCount: 1e6 },
      )
      worker.on('error', () => undefined)
      await worker.waitUntilReady()
    },
    async close() {
      await worker?.close(true)
      await queue.close()
    },
  }
}
