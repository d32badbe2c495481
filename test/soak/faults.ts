import { setTimeout as sleep } from 'node:timers/promises'
import type { Arena } from './arena.ts'
import { monotonicMs } from './diary.ts'
import type { Fault } from './judge/recovery.ts'
import { slowDiskOf } from './slow-disk.ts'
import { LEASE_MS, STREAM } from './terms.ts'

interface Kind {
  name: string
  /** How often, compared with the others. */
  weight: number
  ofServer: boolean
  ends?: true
  /** What would the machine need for it? */
  lacks?: string
  target: (arena: Arena, random: () => number) => Promise<string>
  /** Returns when the process is whole again. */
  inflict: (arena: Arena, target: string, random: () => number) => Promise<void>
}

const BRINK_WITHIN_MS = 2000

async function killAndRestart(arena: Arena, target: string, random: () => number): Promise<void> {
  await arena.processes.kill(target)
  await sleep(random() < 0.5 ? 0 : 2000 * random())
  await arena.processes.restart(target)
}

async function killServer(arena: Arena, target: string, random: () => number): Promise<void> {
  await arena.processes.kill(target)
  await sleep(random() < 0.5 ? 0 : 2 * LEASE_MS * random())
  await arena.nats.restart(arena.nats.names.indexOf(target))
}

/** It dies by itself, between two accesses to the stream; if it cannot, it is killed. */
async function bringToBrink({ processes }: Arena, target: string): Promise<void> {
  processes.signal(target, 'SIGHUP')
  await Promise.race([processes.get(target)?.exited, sleep(BRINK_WITHIN_MS, undefined, { ref: false })])
  await processes.kill(target)
  await processes.restart(target)
}

const pause =
  (leastMs: number, mostMs: number): Kind['inflict'] =>
  async ({ processes }, target, random) => {
    processes.signal(target, 'SIGSTOP')
    await sleep(leastMs + (mostMs - leastMs) * random())
    processes.signal(target, 'SIGCONT')
  }

const one =
  (names: (arena: Arena) => readonly string[]): Kind['target'] =>
  async (arena, random) => {
    const all = names(arena)
    return all[Math.floor(random() * all.length)] ?? ''
  }

/** The first worker is never killed: its memory is used to detect leaks. */
const mortalWorker = one(({ workers }) => workers.slice(1))
const anyWorker = one(({ workers }) => workers)
const mortalEnqueuer = one(({ enqueuers }) => enqueuers.slice(1))
const anyServer = one(({ nats }) => nats.names)

async function leader(arena: Arena, random: () => number): Promise<string> {
  const { cluster } = await arena.js.admin.streams.info(STREAM)
  return cluster?.leader ?? (await anyServer(arena, random))
}

/** Two servers away leave no majority, so faults that need a majority affect one server at a time. */
export function faultKinds(replicas: 1 | 3): Kind[] {
  const server = replicas === 3 ? leader : anyServer
  const who = replicas === 3 ? 'leader' : 'nats-server'
  const slow = slowDiskOf()
  const ofWorkers: Kind[] = [
    { name: 'worker killed', weight: 10, ofServer: false, target: mortalWorker, inflict: killAndRestart, ends: true },
    {
      name: 'worker killed between two accesses',
      weight: 10,
      ofServer: false,
      target: mortalWorker,
      inflict: bringToBrink,
      ends: true,
    },
    {
      name: 'worker paused beyond its lease',
      weight: 6,
      ofServer: false,
      target: anyWorker,
      inflict: pause(1.2 * LEASE_MS, 3 * LEASE_MS),
    },
    {
      name: 'worker paused within its lease',
      weight: 3,
      ofServer: false,
      target: anyWorker,
      inflict: pause(50, LEASE_MS / 2),
    },
    {
      name: 'worker drained and replaced',
      weight: 3,
      ofServer: false,
      ends: true,
      target: mortalWorker,
      inflict: async ({ processes }, target) => {
        processes.signal(target, 'SIGTERM')
        await processes.get(target)?.exited
        await processes.restart(target)
      },
    },
    {
      name: 'clock of a worker stepped',
      weight: 1,
      ofServer: false,
      target: anyWorker,
      inflict: async ({ processes }, target) => processes.signal(target, 'SIGUSR2'),
    },
    {
      name: 'enqueuer killed',
      weight: 3,
      ofServer: false,
      target: mortalEnqueuer,
      inflict: killAndRestart,
      ends: true,
    },
  ]
  const ofServers: Kind[] = [
    { name: `${who} killed`, weight: 4, ofServer: true, target: server, inflict: killServer, ends: true },
    { name: `${who} paused briefly`, weight: 3, ofServer: true, target: server, inflict: pause(100, LEASE_MS / 2) },
    {
      name: `${who} paused beyond the lease`,
      weight: 2,
      ofServer: true,
      target: server,
      inflict: pause(1.2 * LEASE_MS, 3 * LEASE_MS),
    },
    {
      name: `slow disk of ${who}`,
      weight: 2,
      ofServer: true,
      target: server,
      inflict: ({ processes }, target, random) =>
        slow.inflict(processes.get(target)?.pid ?? 0, 1 + 19 * random(), 3000 + 4000 * random()),
      ...(slow.lacks && { lacks: slow.lacks }),
    },
  ]
  const ofFollowers: Kind[] = [
    { name: 'any server killed', weight: 2, ofServer: true, target: anyServer, inflict: killServer, ends: true },
  ]
  return [...ofWorkers, ...ofServers, ...(replicas === 3 ? ofFollowers : [])]
}

/** Starts what could not start while NATS was away, until the signal. */
export async function keepAlive({ processes, workers, enqueuers, inHands }: Arena, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    for (const name of [...workers, ...enqueuers])
      if (!inHands.has(name) && !processes.get(name)?.alive()) {
        inHands.add(name)
        await processes.restart(name)
        inHands.delete(name)
      }
    await sleep(250, undefined, { signal }).catch(() => undefined)
  }
}

/** Until the signal: one fault after the other of workers and, at the same time, of servers. Then all is whole. */
export async function inflictFaults(
  arena: Arena,
  random: () => number,
  signal: AbortSignal,
  tell: (fault: Fault) => void,
): Promise<void> {
  const kinds = faultKinds(arena.replicas).filter(({ lacks }) => lacks === undefined)
  const oneAfterTheOther = async (some: Kind[], pauseMs: number) => {
    while (!signal.aborted) {
      await sleep(pauseMs * (0.5 + random()), undefined, { signal }).catch(() => undefined)
      if (signal.aborted) return
      const kind = choose(some, random)
      const target = await kind.target(arena, random).catch(() => undefined)
      const found = target === undefined ? undefined : arena.processes.get(target)
      // A process that ended by itself, such as a worker that starts while NATS is unreachable, is about to be
      // restarted.
      if (!target || !found?.alive() || arena.inHands.has(target)) continue
      const { pid } = found
      const at = monotonicMs()
      arena.inHands.add(target)
      await kind.inflict(arena, target, random)
      arena.inHands.delete(target)
      tell({
        kind: kind.name,
        target,
        pid,
        at,
        over: monotonicMs(),
        ofServer: kind.ofServer,
        ended: kind.ends ?? false,
      })
    }
  }
  await Promise.all([
    oneAfterTheOther(
      kinds.filter(({ ofServer }) => !ofServer),
      1500,
    ),
    oneAfterTheOther(
      kinds.filter(({ ofServer }) => ofServer),
      6000,
    ),
  ])
}

function choose(kinds: readonly Kind[], random: () => number): Kind {
  let left = random() * kinds.reduce((sum, { weight }) => sum + weight, 0)
  return kinds.find(({ weight }) => (left -= weight) < 0) ?? (kinds.at(-1) as Kind)
}
