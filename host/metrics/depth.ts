import { Gauge, type Registry } from 'prom-client'
import type { DeadLetters } from '#events'
import type { Backlog, Depth, WorkQueue } from '#queue'
import { shared } from './shared.ts'

interface Depths {
  controller: string
  depth: Depth
  backlog: Backlog
}

/** client-go's priorities of changes, and of initial lists and resync. */
const PRIORITY = { high: '0', low: '-100' } as const

/**
 * Reports the contents of the streams, read at each scrape. Every process reports the same values, so use the maximum
 * over processes, not the sum.
 */
export function depthGauges(
  registry: Registry,
  queue: Pick<WorkQueue, 'reconcilers' | 'depth' | 'backlog'>,
  dead: Pick<DeadLetters, 'count'>,
  now: () => number = Date.now,
): void {
  const asked = shared(async () => ({ queues: await depthsOf(queue), dead: await dead.count() }))

  const gauge = (
    name: string,
    help: string,
    labelNames: string[],
    fill: (gauge: Gauge, all: Awaited<ReturnType<typeof asked>>) => void,
  ) => {
    const one: Gauge = new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      async collect() {
        one.reset()
        // Another gauge reports that NATS does not answer.
        await asked().then(
          (all) => fill(one, all),
          () => undefined,
        )
      },
    })
  }

  gauge(
    'workqueue_depth',
    'Current depth of workqueue by workqueue and priority',
    ['name', 'controller', 'priority'],
    (one, { queues }) => {
      for (const { controller, backlog } of queues)
        for (const lane of ['high', 'low'] as const)
          one.set({ name: controller, controller, priority: PRIORITY[lane] }, backlog.lanes[lane])
    },
  )
  gauge(
    'fairlead_keys',
    'Keys by what they do; waiting are those with a timer',
    ['controller', 'state'],
    (one, { queues }) => {
      for (const { controller, depth } of queues)
        for (const [state, count] of Object.entries(depth)) one.set({ controller, state }, count)
    },
  )
  gauge(
    'fairlead_oldest_queued_seconds',
    'How long the key that is queued longest has been',
    ['controller'],
    (one, { queues }) => {
      for (const { controller, backlog } of queues)
        one.set({ controller }, backlog.oldest === undefined ? 0 : Math.max(0, now() - backlog.oldest.getTime()) / 1000)
    },
  )
  gauge('fairlead_dead_letters', 'Messages and keys in DEAD, by why', ['reason'], (one, all) => {
    for (const [reason, count] of Object.entries(all.dead)) one.set({ reason }, count)
  })
  const reachable: Gauge = new Gauge({
    name: 'fairlead_nats_reachable',
    help: '1 if the streams could be read for this scrape',
    registers: [registry],
    async collect() {
      const answered = asked().then(
        () => 1,
        () => 0,
      )
      reachable.set(await answered)
    },
  })
}

async function depthsOf(queue: Pick<WorkQueue, 'reconcilers' | 'depth' | 'backlog'>): Promise<Depths[]> {
  const controllers = await queue.reconcilers()
  return Promise.all(
    controllers.map(async (controller) => {
      const [depth, backlog] = await Promise.all([queue.depth(controller), queue.backlog(controller)])
      return { controller, depth, backlog }
    }),
  )
}
