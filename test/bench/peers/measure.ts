import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMsOf, residentMiBOf } from '../../support/usage.ts'
import { Member, runsOf } from './crew.ts'
import { LEASE_MS, openPeer, type PeerName } from './peer.ts'
import type { Server } from './servers.ts'

export interface Sizes {
  /** The number of keys in the backlog that is drained. */
  backlog: number
  /** Enqueued and run by each process before that. */
  warm: number
  /** One after the other on an idle machine. */
  single: number
  /** Keys that wait, and timers. */
  many: number
  processes: readonly number[]
}

export type Row = [what: string, value: string]

/** What one peer does. `server`: undefined when it needs none. */
export async function measure(peer: PeerName, server: Server | undefined, sizes: Sizes): Promise<Row[]> {
  const settings = (prefix: string) => ({ peer, url: server?.url ?? '', prefix })
  const rows: Row[] = []
  rows.push(...(await rates()))
  rows.push(['enqueue → start, p50 / p99 ms', await latency()])
  rows.push(...(await memory()))
  rows.push(['kill -9 of a worker → its key runs again, s', server ? await recovery() : 'never: all is lost'])
  return rows

  async function rates(): Promise<Row[]> {
    const found: Row[] = []
    let enqueueRate = 0
    for (const processes of server ? sizes.processes : [1]) {
      const { enqueuePerSecond, perSecond, cpu } = await drained(`p${processes}`, processes)
      enqueueRate = Math.max(enqueueRate, enqueuePerSecond)
      found.push([`runs/s of a backlog, ${processes} process${processes > 1 ? 'es' : ''}`, thousands(perSecond)])
      if (processes === 1) found.push(['CPU per 1,000 enqueues and runs, client / server ms', cpu])
    }
    return [['enqueues/s, 64 in flight', thousands(enqueueRate)], ...found]
  }

  async function drained(prefix: string, processes: number) {
    const members: Member[] = []
    try {
      for (let i = 0; i < processes; i++) members.push(await Member.start(settings(prefix)))
      await Promise.all(members.map((member) => member.warmUp(sizes.warm)))
      const [first] = members
      if (first === undefined) throw new Error('no process')
      const before = { client: (await first.usage()).cpuMs, server: server ? cpuMsOf(server.pid) : 0 }
      const began = performance.now()
      await first.enqueue(sizes.backlog)
      const enqueued = performance.now()
      for (const member of members) member.order({ do: 'drain', keys: sizes.backlog })
      await runsOf(members, sizes.backlog)
      const ended = performance.now()
      const client = ((await first.usage()).cpuMs - before.client) / sizes.backlog
      const ofServer = server ? (cpuMsOf(server.pid) - before.server) / sizes.backlog : undefined
      return {
        enqueuePerSecond: (sizes.backlog / (enqueued - began)) * 1000,
        perSecond: (sizes.backlog / (ended - enqueued)) * 1000,
        cpu: `${(1000 * client).toFixed(0)} / ${ofServer === undefined ? '–' : (1000 * ofServer).toFixed(0)}`,
      }
    } finally {
      await Promise.all(members.map((member) => member.kill()))
    }
  }

  /** Enqueues and runs in one process, so that a single clock measures both. */
  async function latency(): Promise<string> {
    const queue = await openPeer(settings('latency'))
    const times: number[] = []
    let begun = Promise.withResolvers<void>()
    await queue.serve(async () => {
      begun.resolve()
      return undefined
    })
    for (let i = -50; i < sizes.single; i++) {
      begun = Promise.withResolvers<void>()
      const from = performance.now()
      await Promise.all([
        begun.promise.then(() => i >= 0 && times.push(performance.now() - from)),
        queue.enqueue(`n.${i}`),
      ])
      await sleep(3)
    }
    await queue.close()
    times.sort((a, b) => a - b)
    const quantile = (q: number) => times[Math.floor(q * (times.length - 1))]?.toFixed(2)
    return `${quantile(0.5)} / ${quantile(0.99)}`
  }

  /** The memory of the server, and of the process that enqueued the keys or ran them. */
  async function memory(): Promise<Row[]> {
    const growth = async (prefix: string, act: (member: Member) => Promise<void>) => {
      await using member = await Member.start(settings(prefix))
      const before = { client: (await member.usage()).rssMiB, server: server ? residentMiBOf(server.pid) : 0 }
      await act(member)
      await sleep(1000)
      const client = (await member.usage()).rssMiB - before.client
      return `${client.toFixed(0)} / ${server ? (residentMiBOf(server.pid) - before.server).toFixed(0) : '–'}`
    }
    const waiting = await growth('many', (member) => member.enqueue(sizes.many))
    const timers = await growth('timers', async (member) => {
      await member.enqueue(sizes.many)
      member.order({ do: 'arm', keys: sizes.many })
      await runsOf([member], sizes.many)
    })
    const many = sizes.many.toLocaleString('en')
    return [
      [`memory of ${many} waiting keys, client / server MiB`, waiting],
      [`memory of ${many} timers, client / server MiB`, timers],
    ]
  }

  async function recovery(): Promise<string> {
    await using victim = await Member.start(settings('killed'))
    await using other = await Member.start(settings('killed'))
    victim.order({ do: 'hold' })
    const held = victim.told(({ began }) => began)
    await victim.enqueue(1)
    await held
    other.order({ do: 'hold' })
    // In the middle between two renewals, wherever those are.
    await sleep(LEASE_MS / 2)
    const again = other.told(({ began }) => began)
    const from = Number(process.hrtime.bigint()) / 1e6
    await victim.kill()
    return (((await again).at - from) / 1000).toFixed(1)
  }
}

const thousands = (perSecond: number): string => Math.round(perSecond).toLocaleString('en')
