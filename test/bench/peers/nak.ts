import { connectJetStream, type Delivery, declareConsumer, declareStream, isWrongSequence, Puller } from '#nats'
import { LEASE_MS, type Peer, SLOTS, type Work } from './peer.ts'

/** The pause between two attempts to get a key that another worker runs. */
const RETRY_MS = 500
const MS = 1e6

/**
 * What one would build first on JetStream: a message per dirty key on a work-queue stream, a lease per key in another
 * with a time to live, and a negative acknowledgement with delay for whoever finds a lease, and for every timer. A
 * change during a run is found by asking again; the lease is not renewed; timers count as messages in flight.
 */
export async function openNak(url: string, prefix: string): Promise<Peer> {
  const js = await connectJetStream({ servers: url, name: 'bench' })
  const stream = `${prefix}_NAK`
  const leases = `${prefix}_LEASES`
  await declareStream(js, {
    name: stream,
    subjects: [`${prefix}.todo.>`],
    retention: 'workqueue',
    max_msgs_per_subject: 1,
    discard: 'old',
  })
  await declareStream(js, {
    name: leases,
    subjects: [`${prefix}.lease.>`],
    max_msgs_per_subject: 1,
    allow_msg_ttl: true,
  })
  await declareConsumer(js, stream, {
    durable_name: 'worker',
    filter_subject: `${prefix}.todo.>`,
    ack_policy: 'explicit',
    ack_wait: LEASE_MS * MS,
    max_deliver: -1,
    max_ack_pending: 200_000,
  })

  const todo = `${prefix}.todo.`
  const acquire = async (key: string): Promise<number | undefined> => {
    const headers = { 'Nats-Expected-Last-Subject-Sequence': 0, 'Nats-TTL': `${LEASE_MS / 1000}s` }
    try {
      return (await js.publish(`${prefix}.lease.${key}`, '', headers)).sequence
    } catch (error) {
      if (isWrongSequence(error)) return undefined
      throw error
    }
  }
  const work = async (delivery: Delivery, run: Work): Promise<void> => {
    const key = delivery.subject.slice(todo.length)
    const lease = await acquire(key)
    if (lease === undefined) return delivery.nak(RETRY_MS)
    const waitMs = await run(key)
    if (waitMs === undefined) await delivery.ackConfirmed()
    else delivery.nak(waitMs)
    await js.admin.streams.deleteMessage(leases, lease, false)
  }

  return {
    enqueue: async (key) => void (await js.publish(todo + key, '', {})),
    async serve(run) {
      let busy = 0
      const puller = new Puller(js, {
        stream,
        consumer: 'worker',
        free: () => SLOTS - busy,
        onMessage: (delivery) => {
          busy++
          void work(delivery, run).finally(() => {
            busy--
            puller.poke()
          })
        },
      })
    },
    close: () => js.close(),
  }
}
