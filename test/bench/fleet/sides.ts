import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { startFairlead } from '../../support/fairlead.ts'
import { goProgram } from '../../support/go-program.ts'
import { startTestNats } from '../../support/servers.ts'
import { type OperatorProcess, startProcess } from '../beside/process.ts'
import type { Operator } from './functions.ts'

const LEASES = { group: 'coordination.k8s.io', version: 'v1', resource: 'leases' }
const REPLICAS = 2
/** The time that a new process of an upgrade has to become ready. */
const READY_MS = 3000
const BESIDE = fileURLToPath(new URL('../beside', import.meta.url))

export const SIDES = ['controller-runtime', 'Fairlead', 'Fairlead with one nats-server'] as const
export type Side = (typeof SIDES)[number]

export interface Place {
  kube: KubeClient
  kubeconfig: string
  /** The module of the functions. */
  module: string
  operators: readonly Operator[]
}

/** A process that may be killed, stopped and started again. */
interface Member {
  pid(): number
  signal(signal: NodeJS.Signals): void
  /** kill -9. */
  kill(): Promise<void>
  start(): Promise<void>
}

/** All processes of one side. */
export interface Fleet extends AsyncDisposable {
  members: Member[]
  /** Those whose failure is measured. For operators: the active process of the one that the function is about. */
  victims(): Promise<{ title: string; member: Member }[]>
  /** Replaces the processes of an operator one after the other, as a Deployment does. */
  upgrade(): Promise<void>
  /** The operator that the victims and the upgrade are about. */
  about: Operator
}

/** One that starts `run` again and again. */
class Replica implements Member {
  readonly #run: () => OperatorProcess
  #process: OperatorProcess

  constructor(run: () => OperatorProcess) {
    this.#run = run
    this.#process = run()
  }

  pid(): number {
    return this.#process.pid
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.#process.pid, signal)
  }

  async kill(): Promise<void> {
    this.#process.kill('SIGKILL')
    await this.#process.exited
  }

  async start(): Promise<void> {
    this.#process = this.#run()
  }

  /** The new process is there before the old one ends. */
  async replace(): Promise<void> {
    const old = this.#process
    this.#process = this.#run()
    await sleep(READY_MS)
    old.kill('SIGTERM')
    await old.exited
  }
}

export async function startFleet(side: Side, place: Place): Promise<Fleet> {
  const about = place.operators.find(({ is }) => is === 'Memcached') ?? place.operators[0]
  if (about === undefined) throw new Error('a fleet has operators')
  return side === 'controller-runtime'
    ? operatorsOf(place, about)
    : platformOf(place, about, side === 'Fairlead' ? 3 : 1)
}

async function operatorsOf({ kube, kubeconfig, operators }: Place, about: Operator): Promise<Fleet> {
  const program = await goProgram('controller-runtime', BESIDE)
  const replicas = new Map<Operator, Replica[]>()
  for (const operator of operators) {
    const { is, kind, number } = operator
    const kinds = is === 'At' ? ['--at', kind, '--memcached', ''] : ['--at', '', '--memcached', kind]
    const run = () => startProcess(program, [...kinds, '--lease', `operator-${number}`], { KUBECONFIG: kubeconfig })
    replicas.set(
      operator,
      Array.from({ length: REPLICAS }, () => new Replica(run)),
    )
  }
  const own = replicas.get(about) ?? []
  return {
    about,
    members: [...replicas.values()].flat(),
    async victims() {
      const { spec } = await kube.get<KubeObject & { spec: { holderIdentity: string } }>(
        resourcePath(LEASES, 'default', `operator-${about.number}`),
      )
      const active = own.find((one) => one.pid() === Number(spec.holderIdentity))
      if (active === undefined) throw new Error(`no process holds the lease: ${spec.holderIdentity}`)
      return [{ title: 'the active process', member: active }]
    },
    async upgrade() {
      for (const one of own) await one.replace()
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([...replicas.values()].flat().map((one) => one.kill()))
    },
  }
}

async function platformOf({ kubeconfig, module }: Place, about: Operator, servers: 1 | 3): Promise<Fleet> {
  const nats = await startTestNats({ replicas: servers })
  let revision = 1
  const run =
    (command: string, ...args: string[]) =>
    (): OperatorProcess =>
      startFairlead([command, ...args], {
        KUBECONFIG: kubeconfig,
        NATS_URL: nats.url,
        FAIRLEAD_REPLICAS: String(servers),
        FAIRLEAD_REVISION: String(revision),
        LOG_LEVEL: 'info',
      })
  const some = (run: () => OperatorProcess) => Array.from({ length: REPLICAS }, () => new Replica(run))
  const bridges = some(run('bridge'))
  const dispatchers = some(run('dispatch', '--function', module))
  const ofNats = nats.names.map((name, index): Member => {
    const server = () => nats.processes.get(name)
    return {
      pid: () => server()?.pid ?? 0,
      signal: (signal) => nats.signal(signal, index),
      kill: () => nats.processes.kill(name),
      start: () => nats.processes.restart(name).then(() => undefined),
    }
  })
  return {
    about,
    members: [...bridges, ...dispatchers, ...ofNats],
    async victims() {
      const [bridge, dispatcher] = [bridges[0], dispatchers[0]]
      if (bridge === undefined || dispatcher === undefined) return []
      const server = servers === 3 ? await leaderOf(nats.monitoringUrls) : undefined
      const leader = server === undefined ? undefined : ofNats[server]
      return [
        { title: 'a bridge', member: bridge },
        { title: 'a dispatcher', member: dispatcher },
        ...(leader === undefined ? [] : [{ title: 'the nats-server that leads', member: leader }]),
      ]
    },
    async upgrade() {
      revision++
      for (const one of dispatchers) await one.replace()
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([...bridges, ...dispatchers].map((one) => one.kill()))
      await nats[Symbol.asyncDispose]()
    },
  }
}

interface Jsz {
  account_details?: { stream_detail?: { name: string; cluster?: { leader?: string } }[] }[]
}

/** The number of the server that leads the stream WORK. */
async function leaderOf(monitoringUrls: readonly string[]): Promise<number | undefined> {
  const { account_details: accounts = [] } = (await (
    await fetch(`${monitoringUrls[0]}/jsz?streams=true`)
  ).json()) as Jsz
  const streams = accounts.flatMap(({ stream_detail: details = [] }) => details)
  const leader = streams.find(({ name }) => name.endsWith('WORK'))?.cluster?.leader
  const number = Number(leader?.split('-')[1])
  return Number.isInteger(number) ? number - 1 : undefined
}
