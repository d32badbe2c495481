import { type Delivery, declareConsumer, declareStream, type JetStream, Puller } from '#nats'
import { inFlight, rate, SLOTS, WARM_RUNS } from './queue-support.ts'

const STREAM = 'FLOOR'
const CONSUMER = 'floor'

/** Runs per second, were a run nothing but its JetStream operations. */
export interface Floor extends AsyncDisposable {
  withEnqueues(runs: number): Promise<number>
  backlog(runs: number): Promise<number>
}

/**
 * What the server gives to so many bare operations per run at the same concurrency: a publish for the enqueue; a
 * delivery, a publish, a confirmed acknowledgement and a publish for the run. No expectations, schedules or headers.
 */
export async function openFloor(js: JetStream, replicas: 1 | 3): Promise<Floor> {
  const config = { retention: 'workqueue', max_msgs_per_subject: 1, discard: 'old', num_replicas: replicas } as const
  await declareStream(js, { name: STREAM, subjects: ['floor.>'], ...config })
  await declareConsumer(js, STREAM, {
    durable_name: CONSUMER,
    filter_subject: 'floor.work.>',
    ack_policy: 'explicit',
    max_ack_pending: 20_000,
  })
  const enqueueAll = (runs: number) => inFlight(runs, (index) => js.publish(`floor.work.${index}`, '', {}))
  const withEnqueues = async (runs: number) => rate(runs, await drained(js, runs, () => enqueueAll(runs)))
  await withEnqueues(WARM_RUNS)
  return {
    withEnqueues,
    async backlog(runs) {
      await enqueueAll(runs)
      return rate(runs, await drained(js, runs, async () => {}))
    },
    async [Symbol.asyncDispose]() {
      await js.admin.streams.delete(STREAM)
    },
  }
}

/** How long it takes, in milliseconds, until all are run. */
async function drained(js: JetStream, runs: number, begin: () => Promise<void>): Promise<number> {
  const all = Promise.withResolvers<void>()
  let busy = 0
  let left = runs
  const run = async (delivery: Delivery) => {
    const slot = delivery.sequence % SLOTS
    await js.publish(`floor.record.${slot}`, '', {})
    await delivery.ackConfirmed()
    await js.publish(`floor.done.${slot}`, '', {})
  }
  const puller = new Puller(js, {
    stream: STREAM,
    consumer: CONSUMER,
    free: () => SLOTS - busy,
    onMessage: (delivery) => {
      busy++
      void run(delivery).then(() => {
        busy--
        if (--left === 0) all.resolve()
        puller.poke()
      }, all.reject)
    },
  })
  const began = performance.now()
  await Promise.all([begin(), all.promise])
  const ms = performance.now() - began
  await puller.drain()
  return ms
}
