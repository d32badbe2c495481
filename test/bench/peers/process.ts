/** One process of a queue; its parent sends the orders, see {@link Order}. */
import { setTimeout as sleep } from 'node:timers/promises'
import { openPeer, type Peer, type PeerSettings } from './peer.ts'

/**
 * `warm`: enqueues and runs this number of keys in a queue of its own, since the first runs of a process are slow.
 * `enqueue`: enqueues keys, some at the same time. `drain`: serves, and reports how many runs began. `arm`: the same,
 * and each run sets a timer. `hold`: serves and never finishes a run.
 */
export type Order = { do: 'warm' | 'enqueue' | 'drain' | 'arm'; keys: number } | { do: 'hold' | 'usage' }

export interface Told {
  ready?: true
  warm?: true
  enqueued?: number
  /** That began so far. */
  runs?: number
  /** A run that began: its key, and the time of the machine's monotonic clock in ms. */
  began?: { key: string; at: number }
  usage?: { cpuMs: number; rssMiB: number }
}

const IN_FLIGHT = 64
const HOUR_MS = 3_600_000
const TELL_MS = 5

const settings = JSON.parse(process.argv[2] ?? '{}') as PeerSettings
const peer = await openPeer(settings)
const tell = (told: Told) => process.send?.(told)
const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6

process.on('disconnect', () => process.exit())
process.on('message', (order: Order) => void obey(order))
tell({ ready: true })

async function obey(order: Order): Promise<void> {
  switch (order.do) {
    case 'warm':
      await warmUp(order.keys)
      return void tell({ warm: true })
    case 'enqueue':
      await enqueue(peer, order.keys)
      return void tell({ enqueued: order.keys })
    case 'drain':
      return serveCounting(order.keys, undefined)
    case 'arm':
      return serveCounting(order.keys, HOUR_MS)
    case 'hold':
      return peer.serve((key) => {
        tell({ began: { key, at: monotonicMs() } })
        return new Promise(() => {})
      })
    case 'usage': {
      const { user, system } = process.cpuUsage()
      return void tell({ usage: { cpuMs: (user + system) / 1000, rssMiB: process.memoryUsage.rss() / 2 ** 20 } })
    }
  }
}

async function warmUp(keys: number): Promise<void> {
  const own = await openPeer({ ...settings, prefix: `${settings.prefix}w${process.pid}` })
  await enqueue(own, keys)
  const all = Promise.withResolvers<void>()
  let left = keys
  await own.serve(async () => {
    if (--left === 0) all.resolve()
    return undefined
  })
  await all.promise
  // The last of them have begun only.
  await sleep(500)
  await own.close()
}

async function enqueue(to: Peer, keys: number): Promise<void> {
  let next = 0
  const some = async () => {
    while (next < keys) await to.enqueue(`n.k${next++}`)
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, some))
}

async function serveCounting(keys: number, waitMs: number | undefined): Promise<void> {
  let runs = 0
  await peer.serve(async () => {
    if (++runs === keys) tell({ runs })
    return waitMs
  })
  setInterval(() => tell({ runs }), TELL_MS)
}
