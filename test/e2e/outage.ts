import { readdirSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FairleadProcess } from '../support/fairlead.ts'
import { playNode } from '../support/node-player.ts'
import { at, until, type World } from './world.ts'

export interface Outage {
  /** The delay after which an At becomes due while all processes are dead. */
  missedMs: number
  /** The delay of an At that is due later. */
  waitingMs: number
  /** When everything comes back; between the two. */
  backMs: number
  /** Receives a description of each step. */
  say?: (what: string) => void
}

export interface AfterOutage {
  due: { missed: number; waiting: number }
  /** When everything was started again. */
  backAt: number
  /** Phases of the two while all still lived. */
  before: (string | undefined)[]
  /** Pods that were there when the servers were back and Fairlead was not yet. */
  podsBetween: number
  /** When the API server took each request that made a pod. */
  created: { missed: number[]; waiting: number[] }
}

/** Two Ats wait, then everything is killed with -9, Fairlead and the servers alike, and started again later. */
export async function surviveOutage(world: World, { missedMs, waitingMs, backMs, say }: Outage): Promise<AfterOutage> {
  const stop = new AbortController()
  await playNode(world.kube, 'default', stop.signal)
  const { began, due, phases: before } = await armAndKill(world, { missedMs, waitingMs })
  say?.('both Ats wait, and everything was killed')
  await absence(world, began + backMs)
  await world.cluster.recover()
  const backAt = Date.now()
  const podsBetween = (await world.pods()).length
  say?.('the servers are back')
  await untilDone(world)
  stop.abort()
  const created = {
    missed: await world.podCreations('missed-pod'),
    waiting: await world.podCreations('waiting-pod'),
  }
  return { due, backAt, before, podsBetween, created }
}

async function armAndKill(world: World, { missedMs, waitingMs }: Pick<Outage, 'missedMs' | 'waitingMs'>) {
  await using one = world.up()
  await using other = world.up()
  await Promise.all([one, other].map((process) => process.logged(({ msg }) => msg === 'started')))
  // Not before: on a busy machine they take long to start, and the first would be due while they live.
  const began = Date.now()
  const due = { missed: began + missedMs, waiting: began + waitingMs }
  for (const [name, time] of Object.entries(due)) await world.create(at(name, new Date(time)))
  await Promise.all(Object.keys(due).map((name) => waits(name, [one, other])))
  const phases = (await world.ats()).map(({ status }) => status?.phase)
  const { processes } = world.cluster
  await Promise.all(processes.names().map((name) => processes.kill(name)))
  return { began, due, phases }
}

/** Resolves when the log of one of the processes reports that the At waits. */
const waits = (name: string, processes: FairleadProcess[]) =>
  Promise.any(
    processes.map((process) =>
      process.logged(
        ({ step, result, key }) => step === 'finished' && result === 'requeue_after' && key === `default/${name}`,
      ),
    ),
  )

/** Until that time, because the time of an At has to pass. No other process on this machine gets the ports meanwhile. */
async function absence(world: World, until: number): Promise<void> {
  const holders = portsOf(world).map((port) => createServer((socket) => socket.destroy()).listen(port, '127.0.0.1'))
  await sleep(Math.max(0, until - Date.now()))
  await Promise.all(holders.map((holder) => new Promise((closed) => holder.close(closed))))
}

function portsOf({ cluster: { dir, nats } }: World): number[] {
  const specs = readdirSync(join(dir, 'pid')).map((file) => readFileSync(join(dir, 'pid', file), 'utf8'))
  const inArguments = specs.flatMap((spec) => [...spec.matchAll(/(?:127\.0\.0\.1:|-port=)(\d+)/g)])
  const ofNats = nats?.servers.flatMap((server) => [server.port, server.monitoringPort, server.clusterPort]) ?? []
  return [...new Set([...inArguments.map(([, port]) => Number(port)), ...ofNats])]
}

async function untilDone(world: World): Promise<void> {
  await using one = world.up()
  await using other = world.up()
  const ended = [one, other].map(({ exited }) =>
    exited.then((how) => {
      throw new Error(`fairlead ended: ${JSON.stringify(how)}`)
    }),
  )
  const done = until(async () => (await world.ats()).every(({ status }) => status?.phase === 'DONE'))
  await Promise.race([done, ...ended])
}
