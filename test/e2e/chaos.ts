import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import type { AuditedRequest } from '#lab'
import type { FairleadProcess, LogLine } from '../support/fairlead.ts'
import { playNode, type SeenPod } from '../support/node-player.ts'
import { randomFrom } from '../support/random.ts'
import { overlaps, type RunInterval, runsOf } from '../support/runs.ts'
import { at, until, type World } from './world.ts'

export const SEED = Number(process.env['FAIRLEAD_CHAOS_SEED'] ?? Date.now() % 1_000_000)
/** Left out: each load is as large as it has to be. */
export const GIVEN_COUNT = process.env['FAIRLEAD_CHAOS_ATS'] as `${number}` | undefined

/** All of them are created before the first is due, or little later. */
const LEAD_MS = 3000
/** Other tests may be running on the same cores. */
export const PATIENCE_MS = 240_000

interface Life {
  process: FairleadProcess
  /** From when it is to be killed; in the end, when it was gone. */
  endedAt?: number
}

/** A process that is started again after each kill. */
export class Replica {
  #up: () => FairleadProcess
  readonly #lives: Life[] = []
  #ended: string | undefined

  constructor(up: () => FairleadProcess) {
    this.#up = up
  }

  start(): FairleadProcess {
    const life: Life = { process: this.#up() }
    this.#lives.push(life)
    void life.process.exited.then(({ code, signal, at }) => {
      if (life.endedAt === undefined) this.#ended = `${code ?? signal}: ${JSON.stringify(life.process.logs.slice(-5))}`
      life.endedAt = at
    })
    return life.process
  }

  expectAlive(): void {
    if (this.#ended !== undefined) throw new Error(`a process ended by itself, ${this.#ended}`)
  }

  get kills(): number {
    return this.#lives.length - 1
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const life = this.#lives.at(-1)
    if (life === undefined) return
    life.endedAt ??= Date.now()
    life.process.kill(signal)
    await life.process.exited
  }

  /** Ends this process, and serves with one of another release. */
  async replace(signal: NodeJS.Signals, up: () => FairleadProcess): Promise<void> {
    await this.kill(signal)
    this.#up = up
    await this.start().logged(({ msg }) => msg === 'started')
  }

  /** The logs of all its processes. */
  get logs(): LogLine[] {
    return this.#lives.flatMap(({ process }) => process.logs)
  }

  /** Returns the log lines about a key of the At reconciler, with their processes. */
  logOf(key: string): LogLine[] {
    return this.#lives.flatMap(({ process }) =>
      process.logs.filter((line) => `at/${line.key}` === key).map((line) => ({ ...line, pid: process.pid })),
    )
  }

  runs(): RunInterval[] {
    return this.#lives.flatMap(({ process, endedAt = Date.now() }) => runsOf(process.logs, process.pid, endedAt))
  }
}

/** Processes that have started, each with a bridge and a dispatcher; killed at the end of the block. */
export async function startReplicas(world: Pick<World, 'up'>, count: number): Promise<Replica[] & AsyncDisposable> {
  const replicas = Array.from({ length: count }, () => new Replica(() => world.up()))
  await Promise.all(replicas.map((replica) => replica.start().logged(({ msg }) => msg === 'started')))
  const kill = async () => void (await Promise.all(replicas.map((replica) => replica.kill())))
  return Object.assign(replicas, { [Symbol.asyncDispose]: kill })
}

interface Load {
  world: World
  replicas: Replica[]
  /** Begins the names of its Ats. */
  prefix: string
  count: number
  /** Between the first and the last that is due. */
  spreadMs: number
}

interface Targets {
  replicas: Replica[]
  random: () => number
  /** The load is over, or has failed. */
  signal: AbortSignal
}

/** Ats that are due one after the other, while `chaos` goes on; what came of it. */
export async function underLoad(
  { world, replicas, prefix, count, spreadMs }: Load,
  chaos: (targets: Targets) => Promise<void>,
) {
  const stop = new AbortController()
  const pods = await playNode(world.kube, 'default', stop.signal)
  const first = Date.now() + LEAD_MS
  const due = new Map(
    Array.from({ length: count }, (_, i) => [`${prefix}-${i}`, first + Math.floor((i * spreadMs) / count)]),
  )
  const allDone = async () => {
    await Promise.all([...due].map(([name, time]) => world.create(at(name, new Date(time)))))
    // Repeated lists of 1000 objects would load the server.
    await sleep(Math.max(0, first + spreadMs - Date.now()))
    await until(() => areDone(world, prefix, count), {
      leastMs: 1000,
      unless: () => {
        for (const replica of replicas) replica.expectAlive()
      },
    })
  }
  try {
    await Promise.all([chaos({ replicas, random: randomFrom(SEED), signal: stop.signal }), allDone()])
  } finally {
    stop.abort()
  }
  const runs = replicas.flatMap((replica) => replica.runs()).filter(({ key }) => key.includes(`/${prefix}-`))
  return {
    world,
    due,
    pods: [...pods.values()].filter(({ name }) => name.startsWith(`${prefix}-`)),
    kills: sum(replicas.map((replica) => replica.kills)),
    cut: runs.filter(({ cut }) => cut).length,
    runs,
    logOf: (key: string) => replicas.flatMap((replica) => replica.logOf(key)),
  }
}

async function areDone(world: World, prefix: string, count: number): Promise<boolean> {
  const done = (await world.ats()).filter(
    ({ metadata, status }) => metadata.name.startsWith(`${prefix}-`) && status?.phase === 'DONE',
  )
  return done.length === count
}

const sum = (numbers: number[]): number => numbers.reduce((total, number) => total + number, 0)

interface Came {
  world: World
  due: Map<string, number>
  pods: SeenPod[]
  runs: RunInterval[]
  logOf: (key: string) => LogLine[]
}

export function expectOnePodEach({ due, pods }: Came): void {
  const ofAt = Map.groupBy(pods, ({ owner }) => owner)
  const counted = [...due.keys()].map((name) => ({ name, pods: ofAt.get(name)?.length ?? 0 }))
  expect(counted.filter(({ pods: uids }) => uids !== 1)).toEqual([])
  expect(ofAt.size).toBe(due.size)
}

/**
 * Expects one creation of each pod. The audit log lacks a stored write if the server was killed before it wrote the
 * line. In that case (`atMost`), and if the client had ended before the answer, the log shows that no pod was created
 * twice, and the watch shows that each was created.
 */
export async function expectOneCreationEach({ world, due }: Came, { atMost = false } = {}): Promise<void> {
  const requests = await world.podRequests()
  const answers = [...due].map(([name, time]) => ({ name, time, requests: requests.get(`${name}-pod`) ?? [] }))
  const doubtful = answers.filter(({ requests }) => {
    const created = requests.filter(({ code }) => code === 201).length
    return created !== 1 && !(created === 0 && (atMost || requests.some(isUnanswered)))
  })
  expect(doubtful).toEqual([])
  const early = answers.filter(({ time, requests }) => requests.some(({ receivedAt }) => receivedAt < time))
  expect(early, 'pods created before their time').toEqual([])
}

/** The client was killed, or gave its key up, while it waited for the answer: the line has an error's code. */
const isUnanswered = ({ code }: AuditedRequest): boolean => code === 0 || code >= 499

export const expectNoTwoAtOnce = ({ due, runs, logOf }: Came): void => {
  expect(runs.length).toBeGreaterThanOrEqual(due.size)
  const found = overlaps(runs).map((pair) => ({ pair, log: logOf(pair[0].key).toSorted(byTime) }))
  expect(found.map((of) => JSON.stringify(of))).toEqual([])
}

const byTime = (a: LogLine, b: LogLine): number => Date.parse(a.time) - Date.parse(b.time)

/** About one a second, of the first so many processes. */
export const killAgainAndAgain =
  (kills: number, victims: number) =>
  async ({ replicas, random, signal }: Targets): Promise<void> => {
    for (let kill = 0; kill < kills; kill++) {
      await sleep(500 + random() * 1000, undefined, { signal })
      const victim = replicas[Math.floor(random() * victims)]!
      await victim.kill()
      victim.start()
    }
  }

/** A server, from when the first At is due. */
export const killServer =
  (world: World, server: string, kills: number) =>
  async ({ random, signal }: Targets): Promise<void> => {
    await sleep(LEAD_MS, undefined, { signal })
    for (let kill = 0; kill < kills; kill++) {
      await sleep(500 + random() * 1500, undefined, { signal })
      await world.cluster.restart(server)
    }
  }
