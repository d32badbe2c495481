import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMsOf, residentMiBOf } from '../../support/usage.ts'
import { quantile } from '../median.ts'
import type { Edit, FleetEdits } from './edits.ts'
import type { Fleet } from './sides.ts'

/** A fleet that works, beside the API server that it works on. */
export interface Scene {
  fleet: Fleet
  edits: FleetEdits
  apiServer: ApiServer
  /** Of the measured phases. */
  seconds: number
  say: (what: string) => void
}

export interface ApiServer {
  pid: number
  /** Requests to it but those of the bench, so far. */
  requests(): Promise<number>
  watches(): Promise<number>
}

export type Figures = Record<string, number>

const PER_SECOND = 20
/** Longer than any lease of both sides. */
const LONGEST_MS = 60_000
/** Edits go on for so long after a failure. */
const FAILURE_SECONDS = 10
const UPGRADE_SECONDS = 20
const RESTART_SECONDS = 30
/** Of a core. A fleet is calm when it uses so little, or when it uses at most MAY_BE_CALM_SHARE and no longer less and less. */
const CALM_SHARE = 0.1
const MAY_BE_CALM_SHARE = 0.4
const FALLING = 0.85
const LOOK_MS = 2000
const LONGEST_CALM_MS = 90_000

/** What requests cost, and what there is beside the fleet: the API server alone. */
export async function measuredFor(seconds: number, pids: () => number[], apiServer: ApiServer): Promise<Figures> {
  const before = { requests: await apiServer.requests(), cpu: cpuOf(pids()), server: cpuMsOf(apiServer.pid) }
  const began = performance.now()
  await sleep(seconds * 1000)
  const took = performance.now() - began
  const [cpu, server] = [cpuOf(pids()), cpuMsOf(apiServer.pid)]
  return {
    cpu: (100 * (cpu - before.cpu)) / took,
    memory: memoryOf(pids()),
    requests: (60_000 * ((await apiServer.requests()) - before.requests)) / took,
    watches: await apiServer.watches(),
    serverCpu: (100 * (server - before.server)) / took,
    serverMemory: residentMiBOf(apiServer.pid),
  }
}

/** Measures the fleet, and the share of each kind of its processes. */
async function fleetFor({ fleet, apiServer, seconds, say }: Scene): Promise<Figures> {
  const before = fleet.members.map((one) => cpuMsOf(one.pid()))
  const figures = await measuredFor(seconds, () => pidsOf(fleet), apiServer)
  const shares = new Map<string, { processes: number; cpu: number; memory: number }>()
  for (const [index, one] of fleet.members.entries()) {
    const { processes, cpu, memory } = shares.get(one.title) ?? { processes: 0, cpu: 0, memory: 0 }
    const used = (cpuMsOf(one.pid()) - (before[index] ?? 0)) / (10 * seconds)
    shares.set(one.title, { processes: processes + 1, cpu: cpu + used, memory: memory + residentMiBOf(one.pid()) })
  }
  for (const [title, { processes, cpu, memory }] of shares) {
    say(`${processes} × ${title}: ${cpu.toFixed(1)} % of a core, ${memory.toFixed(0)} MiB`)
    figures[`cpu of ${processes} × ${title}`] = cpu
    figures[`memory of ${processes} × ${title}`] = memory
  }
  return figures
}

const pidsOf = ({ members }: Fleet): number[] => members.map((one) => one.pid())
const cpuOf = (pids: readonly number[]): number => pids.reduce((sum, pid) => sum + cpuMsOf(pid), 0)
const memoryOf = (pids: readonly number[]): number => pids.reduce((sum, pid) => sum + residentMiBOf(pid), 0)

/** Resolves when the fleet has nothing to do any more. */
export async function calm({ fleet }: Pick<Scene, 'fleet'>): Promise<void> {
  const end = performance.now() + LONGEST_CALM_MS
  for (let quiet = 0, last = Number.POSITIVE_INFINITY; quiet < 2 && performance.now() < end; ) {
    const before = cpuOf(pidsOf(fleet))
    await sleep(LOOK_MS)
    const used = cpuOf(pidsOf(fleet)) - before
    const isSteady = used <= MAY_BE_CALM_SHARE * LOOK_MS && used >= FALLING * last
    quiet = isSteady || used <= CALM_SHARE * LOOK_MS ? quiet + 1 : 0
    last = used
  }
}

export const idle = (scene: Scene): Promise<Figures> => fleetFor(scene)

export async function edited(scene: Scene): Promise<Figures> {
  const editing = scene.edits.during(scene.seconds, PER_SECOND, LONGEST_MS)
  const figures = await fleetFor(scene)
  const found = await editing
  return { ...figures, ...timesOf(found) }
}

/** Each failure while edits go on. Stopped: as if the machine of the process had lost its network. */
export async function failures(scene: Scene): Promise<Figures> {
  const figures: Figures = { killed: 0, stopped: 0, lost: 0 }
  const note = (figure: 'killed' | 'stopped', title: string, found: readonly Edit[]) => {
    const { longest = 0, lost = 0 } = timesOf(found)
    scene.say(`${figure}: ${title}: ${longest.toFixed(0)} ms`)
    figures[figure] = Math.max(figures[figure] ?? 0, longest / 1000)
    figures['lost'] = (figures['lost'] ?? 0) + lost
  }
  for (const { title, member } of await scene.fleet.victims()) {
    const editing = scene.edits.during(FAILURE_SECONDS, PER_SECOND, LONGEST_MS)
    await member.kill()
    note('killed', title, await editing)
    await member.start()
    await calm(scene)
  }
  for (const { title, member } of await scene.fleet.victims()) {
    const editing = scene.edits.during(FAILURE_SECONDS, PER_SECOND, LONGEST_MS)
    member.signal('SIGSTOP')
    note('stopped', title, await editing)
    // As a kubelet would do whose probe has failed.
    await member.kill()
    await member.start()
    await calm(scene)
  }
  return figures
}

export async function upgraded({ fleet, edits }: Scene): Promise<Figures> {
  const editing = edits.during(UPGRADE_SECONDS, PER_SECOND, LONGEST_MS)
  await fleet.upgrade()
  const found = await editing
  const own = found.filter(({ operator }) => operator === fleet.about)
  const others = found.filter(({ operator }) => operator !== fleet.about)
  return {
    own: (timesOf(own)['longest'] ?? 0) / 1000,
    others: (timesOf(others)['longest'] ?? 0) / 1000,
    lost: timesOf(found)['lost'] ?? 0,
  }
}

/** All processes end at once, objects are edited meanwhile, and all start again. */
export async function restarted({ fleet, edits, apiServer }: Scene): Promise<Figures> {
  await Promise.all(fleet.members.map((one) => one.kill()))
  const before = cpuMsOf(apiServer.pid)
  const editing = edits.oneOfEach(LONGEST_MS + RESTART_SECONDS * 1000)
  const over = sleep(RESTART_SECONDS * 1000)
  await Promise.all(fleet.members.map((one) => one.start()))
  const { longest = 0, lost = 0 } = timesOf(await editing)
  await over
  return { followed: longest / 1000, serverCpuSeconds: (cpuMsOf(apiServer.pid) - before) / 1000, lost }
}

function timesOf(found: readonly Edit[]): Figures {
  const times = found.flatMap(({ ms }) => ms ?? [])
  const lost = found.length - times.length
  return {
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    longest: lost > 0 ? Number.POSITIVE_INFINITY : Math.max(0, ...times),
    edits: found.length,
    lost,
  }
}
