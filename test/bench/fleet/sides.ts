import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { type FairleadProcess, startFairlead } from '../../support/fairlead.ts'
import { goProgram } from '../../support/go-program.ts'
import { startTestNats } from '../../support/servers.ts'
import { type OperatorProcess, startProcess } from '../beside/process.ts'
import type { Operator } from './functions.ts'

const LEASES = { group: 'coordination.k8s.io', version: 'v1', resource: 'leases' }
const REPLICAS = 2
/** The time that a new process of an upgrade has to become ready. */
const READY_MS = 3000
const BESIDE = fileURLToPath(new URL('../beside', import.meta.url))

/** What runs on each side that is Fairlead: its processes, each twice, and the servers of NATS. */
const PLATFORMS = {
  Fairlead: { commands: ['bridge', 'dispatch'], servers: 3 },
  'Fairlead up': { commands: ['up'], servers: 3 },
  'Fairlead with one nats-server': { commands: ['bridge', 'dispatch'], servers: 1 },
} as const
type Platform = keyof typeof PLATFORMS

/**
 * As in the pods of deploy/: Node.js gives a heap half of the memory limit of its container, and the image starts it with this
 * young generation.
 */
const heapIn = (command: string): string =>
  `--max-old-space-size=${command === 'bridge' ? 256 : 512} --max-semi-space-size=4`
/** As in deploy/fairlead-ha and deploy/nats. */
const SYNC_INTERVAL = { 3: 'always', 1: '1s' } as const

export const SIDES = ['controller-runtime', ...(Object.keys(PLATFORMS) as Platform[])] as const
export type Side = (typeof SIDES)[number]

export interface Place {
  kube: KubeClient
  kubeconfig: string
  /** The module of the functions. */
  module: string
  operators: readonly Operator[]
  /** Told of each start of a process of Fairlead. */
  onStart?: (process: FairleadProcess) => void
}

/** A process that may be killed, stopped and started again. */
export interface Member {
  title: string
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
  /** The logs of the servers. */
  logFiles: string[]
}

/** One that starts `run` again and again. */
class Replica implements Member {
  readonly title: string
  readonly #run: () => OperatorProcess
  #process: OperatorProcess

  constructor(title: string, run: () => OperatorProcess) {
    this.title = title
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
  return side === 'controller-runtime' ? operatorsOf(place, about) : platformOf(place, about, side)
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
      Array.from({ length: REPLICAS }, () => new Replica('an operator', run)),
    )
  }
  const own = replicas.get(about) ?? []
  return {
    about,
    logFiles: [],
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

async function platformOf({ kubeconfig, module, onStart }: Place, about: Operator, side: Platform): Promise<Fleet> {
  const { commands, servers } = PLATFORMS[side]
  const nats = await startTestNats({ replicas: servers, syncInterval: SYNC_INTERVAL[servers] })
  let revision = 1
  const run =
    (command: string, ...args: string[]) =>
    (): OperatorProcess => {
      const started = startFairlead([command, ...args], {
        KUBECONFIG: kubeconfig,
        NATS_URL: nats.url,
        FAIRLEAD_REPLICAS: String(servers),
        FAIRLEAD_REVISION: String(revision),
        LOG_LEVEL: 'info',
        NODE_OPTIONS: heapIn(command),
      })
      onStart?.(started)
      return started
    }
  const replicasOf = new Map<string, Replica[]>(
    commands.map((command) => {
      const start = run(command, ...(command === 'bridge' ? [] : ['--function', module]))
      return [command, Array.from({ length: REPLICAS }, () => new Replica(`fairlead ${command}`, start))]
    }),
  )
  const replicas = [...replicasOf.values()].flat()
  const ofNats = nats.names.map((name, index): Member => {
    const server = () => nats.processes.get(name)
    return {
      title: 'nats-server',
      pid: () => server()?.pid ?? 0,
      signal: (signal) => nats.signal(signal, index),
      kill: () => nats.processes.kill(name),
      start: () => nats.restart(index),
    }
  })
  return {
    about,
    logFiles: nats.names.map((name) => nats.processes.logFile(name)),
    members: [...replicas, ...ofNats],
    async victims() {
      const found = [...replicasOf.values()].flatMap(([first]) => first ?? [])
      const leader = servers === 3 ? await leaderOf(nats.monitoringUrls) : undefined
      const server = leader === undefined ? undefined : ofNats[leader]
      return [
        ...found.map((member) => ({ title: member.title, member })),
        ...(server === undefined ? [] : [{ title: 'the nats-server that leads', member: server }]),
      ]
    },
    async upgrade() {
      revision++
      for (const one of replicasOf.get(commands.at(-1) ?? '') ?? []) await one.replace()
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(replicas.map((one) => one.kill()))
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
