import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { isNotFound } from '#kube'
import type { EtcdClusters } from './etcd-clusters.ts'
import { whileAway } from './world.ts'

interface Cast {
  clusters: EtcdClusters
  name: string
  random: () => number
}

interface Fault {
  what: string
  /** A member may be lost by it: it happens only while all are there. */
  isLoss: boolean
  happen(cast: Cast): Promise<unknown>
}

const STALL_MS = 4000
const PAUSE_MS = { least: 1000, most: 4000 }
const SIZES = [3, 5]
const GRACE_S = 30

const FAULTS: readonly Fault[] = [
  { what: 'a member is killed', isLoss: true, happen: async (cast) => remove(cast, await anyMember(cast), 0) },
  { what: 'a member is evicted', isLoss: true, happen: async (cast) => remove(cast, await anyMember(cast), GRACE_S) },
  {
    what: 'the leader is killed',
    isLoss: true,
    happen: async (cast) => remove(cast, (await cast.clusters.statusOf(cast.name)).leader, 0),
  },
  { what: "a member's process is killed", isLoss: true, happen: (cast) => signalMember(cast, 'SIGKILL') },
  {
    what: "a member's process stalls",
    isLoss: true,
    async happen(cast) {
      const pid = await signalMember(cast, 'SIGSTOP')
      await sleep(STALL_MS)
      if (pid !== undefined) send(pid, 'SIGCONT')
    },
  },
  {
    what: 'another size',
    isLoss: true,
    happen: ({ clusters, name, random }) => clusters.edit(name, { size: pick(SIZES, random) }),
  },
  {
    what: 'a dispatcher is killed',
    isLoss: false,
    async happen({ clusters, random }) {
      const victim = pick(clusters.replicas, random)
      await victim?.kill()
      victim?.start()
    },
  },
]

/** Random faults, one after the other, until the signal. Gives how often each has happened. */
export async function faultsUntil(signal: AbortSignal, cast: Cast): Promise<Record<string, number>> {
  const happened: Record<string, number> = {}
  while (!signal.aborted) {
    const isWhole = await cast.clusters.isSettled(cast.name)
    const fault = pick(
      FAULTS.filter(({ isLoss }) => isWhole || !isLoss),
      cast.random,
    )
    await fault?.happen(cast)
    if (fault) happened[fault.what] = (happened[fault.what] ?? 0) + 1
    await sleep(PAUSE_MS.least + cast.random() * (PAUSE_MS.most - PAUSE_MS.least))
  }
  return happened
}

const anyMember = async ({ clusters, name, random }: Cast): Promise<string | undefined> =>
  pick(await clusters.names(name), random)

/** It may be gone already. */
async function remove({ clusters }: Cast, pod: string | undefined, gracePeriodSeconds: number): Promise<void> {
  if (pod === undefined) return
  try {
    await whileAway(() => clusters.kill(pod, gracePeriodSeconds))
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}

/** To the etcd of one member. Its pid; undefined: none was found. */
async function signalMember(cast: Cast, signal: NodeJS.Signals): Promise<number | undefined> {
  const pid = pidWith(`--name=${await anyMember(cast)}`)
  if (pid !== undefined) send(pid, signal)
  return pid
}

/** Processes in pods of the node are seen from here. */
const pidWith = (argument: string): number | undefined =>
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
