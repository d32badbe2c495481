import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { isNotFound } from '#kube'
import type { Happening } from '../soak/etcd/outages.ts'
import type { EtcdClusters } from './etcd-clusters.ts'
import { whileAway } from './world.ts'

interface Cast {
  clusters: EtcdClusters
  names: readonly string[]
  random: () => number
}

/** One cluster of them. */
interface Victim extends Omit<Cast, 'names'> {
  name: string
  /** Must be called at the moment of the fault. */
  happens: (what: string) => void
}

interface Fault {
  /** A member may be lost by it: it happens only while all are there. */
  isLoss: boolean
  happen(victim: Victim): Promise<unknown>
}

/** A fault that has happened, to one cluster or to all. */
interface Struck extends Happening {
  to?: string
}

const STALL_MS = 4000
const PAUSE_MS = { least: 1000, most: 4000 }
/** The share of degraded periods in which no further fault is injected. */
const SPARED = 0.7
const SIZES = [3, 5]
const VERSIONS = ['3.6.16', '3.7.3']
const GRACE_S = 30

const FAULTS: readonly Fault[] = [
  { isLoss: true, happen: (victim) => remove(victim, 'is killed', 0) },
  { isLoss: true, happen: (victim) => remove(victim, 'is evicted', GRACE_S) },
  {
    isLoss: true,
    async happen(victim) {
      const { leader } = await victim.clusters.statusOf(victim.name)
      await remove(victim, 'is killed', 0, leader)
    },
  },
  { isLoss: true, happen: (victim) => signalMember(victim, 'loses its process', 'SIGKILL') },
  {
    isLoss: true,
    async happen(victim) {
      const pid = await signalMember(victim, `stalls for ${STALL_MS} ms`, 'SIGSTOP')
      await sleep(STALL_MS)
      if (pid !== undefined) send(pid, 'SIGCONT')
    },
  },
  {
    isLoss: true,
    async happen({ clusters, name, random, happens }) {
      const size = pick(SIZES, random)
      happens(`size ${size}`)
      await clusters.edit(name, { size })
    },
  },
  {
    isLoss: true,
    async happen({ clusters, name, random, happens }) {
      happens('another pod policy')
      await clusters.edit(name, { pod: { labels: { team: `t${Math.floor(random() * 1e6)}` } } })
    },
  },
  {
    isLoss: true,
    async happen({ clusters, name, random, happens }) {
      const version = pick(VERSIONS, random)
      happens(`version ${version}`)
      await clusters.edit(name, { version })
    },
  },
  {
    isLoss: false,
    async happen({ clusters, random, happens }) {
      const replica = pick(clusters.replicas, random)
      happens(DISPATCHER_KILLED)
      await replica?.kill()
      replica?.start()
    },
  },
]

const DISPATCHER_KILLED = 'a dispatcher is killed'

/** Random faults, one after the other, until the signal. */
export async function faultsUntil(signal: AbortSignal, { clusters, names, random }: Cast): Promise<Struck[]> {
  const struck: Struck[] = []
  while (!signal.aborted) {
    const name = pick(names, random) ?? ''
    const isWhole = await clusters.isSettled(name)
    const last = struck.findLast(({ to }) => to === name)
    if (isWhole && last) last.wholeAt ??= performance.now()
    if (!isWhole && random() < SPARED) {
      await pause(random)
      continue
    }
    const fault = pick(
      FAULTS.filter(({ isLoss }) => isWhole || !isLoss),
      random,
    )
    const happens = (what: string) =>
      struck.push({ what, at: performance.now(), ...(what !== DISPATCHER_KILLED && { to: name }) })
    await fault?.happen({ clusters, name, random, happens })
    await pause(random)
  }
  return struck
}

const pause = (random: () => number): Promise<void> =>
  sleep(PAUSE_MS.least + random() * (PAUSE_MS.most - PAUSE_MS.least))

const anyMember = async ({ clusters, name, random }: Victim): Promise<string | undefined> =>
  pick(await clusters.names(name), random)

/** Describes a fault, with the role of the member in its cluster. */
const said = async ({ clusters, name }: Victim, member: string, what: string): Promise<string> =>
  `${(await clusters.statusOf(name)).leader === member ? 'the leader' : 'a follower'} ${what}`

/** It may be gone already. */
async function remove(victim: Victim, what: string, gracePeriodSeconds: number, given?: string): Promise<void> {
  const pod = given ?? (await anyMember(victim))
  if (pod === undefined) return
  victim.happens(await said(victim, pod, what))
  try {
    await whileAway(() => victim.clusters.kill(pod, gracePeriodSeconds))
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}

/** To the etcd of one member. Its pid; undefined: none was found. */
async function signalMember(victim: Victim, what: string, signal: NodeJS.Signals): Promise<number | undefined> {
  const member = await anyMember(victim)
  const pid = member === undefined ? undefined : pidWith(`--name=${member}`)
  if (member === undefined || pid === undefined) return undefined
  victim.happens(await said(victim, member, what))
  send(pid, signal)
  return pid
}

/** Processes in pods of the node are seen from here. */
export const pidWith = (argument: string): number | undefined =>
  readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map(Number)
    .find((pid) => argumentsOf(pid).includes(argument))

function argumentsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
  } catch {
    return []
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

const pick = <T>(among: readonly T[], random: () => number): T | undefined => among[Math.floor(random() * among.length)]
