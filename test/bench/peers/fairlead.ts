import { connectJetStream } from '#nats'
import { openQueue } from '#queue'
import { silent } from '../../support/silent.ts'
import { LEASE_MS, type Peer, SLOTS } from './peer.ts'

const FN = 'bench'

/** Ours, as `fairlead up` opens it. */
export async function openFairlead(url: string, prefix: string): Promise<Peer> {
  const js = await connectJetStream({ servers: url, name: 'bench' })
  const queue = await openQueue(js, { prefix, leaseMs: LEASE_MS, ackWaitMs: LEASE_MS, log: silent })
  await queue.declare(FN)
  return {
    enqueue: async (key) => void (await queue.enqueue(FN, key)),
    async serve(work) {
      queue.serve({
        reconciler: FN,
        // A quarter of the slots is for the low lane, which this benchmark does not use.
        slots: Math.ceil((SLOTS * 4) / 3),
        handler: async ({ key }) => {
          const waitMs = await work(key)
          return waitMs === undefined ? { kind: 'done' } : { kind: 'requeue', at: new Date(Date.now() + waitMs) }
        },
      })
    },
    close: () => js.close(),
  }
}
