import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { FairleadProcess } from '../support/fairlead.ts'
import { playNode, type SeenPod } from '../support/node-player.ts'
import { randomFrom } from '../support/random.ts'
import { overlaps, type RunInterval, runsOf } from '../support/runs.ts'
import { at, startWorld, until, type World } from './world.ts'

const GIVEN = process.env['FAIRLEAD_CHAOS_ATS']
const MANY = Number(GIVEN ?? 1000)
const SOME = Number(GIVEN ?? 300)
/** Each has a bridge and a dispatcher. */
const PROCESSES = Number(process.env['FAIRLEAD_CHAOS_PROCESSES'] ?? 3)
const SEED = Number(process.env['FAIRLEAD_CHAOS_SEED'] ?? Date.now() % 1_000_000)

/** All of them are created before the first is due, or little later. */
const LEAD_MS = 3000
const SPREAD_MS = 10_000
const PATIENCE_MS = 120_000
/** About one a second from before the first is due until after the last: on a slow machine too, the kills end. */
const KILLS = 16

let world: World
beforeAll(async () => {
  world = await startWorld()
})
afterAll(() => world?.[Symbol.asyncDispose]())

/** A process that is started anew after each kill. */
class Replica {
  readonly #lives: { process: FairleadProcess; endedAt?: number }[] = []

  start(): FairleadProcess {
    const process = world.up()
    this.#lives.push({ process })
    return process
  }

  get kills(): number {
    return this.#lives.length - 1
  }

  async kill(): Promise<void> {
    const life = this.#lives.at(-1)
    if (life === undefined) return
    life.process.kill('SIGKILL')
    life.endedAt = (await life.process.exited).at
  }

  /** Runs that a kill ended. */
  get cut(): number {
    return this.#lives.flatMap(({ process, endedAt }) =>
      runsOf(process.logs, process.pid, endedAt ?? 0).filter(({ to }) => to === endedAt),
    ).length
  }

  runs(): RunInterval[] {
    return this.#lives.flatMap(({ process, endedAt = Date.now() }) => runsOf(process.logs, process.pid, endedAt))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill()
  }
}

interface Load {
  replicas: Replica[]
  random: () => number
}

/** Ats due over ten seconds and some processes, while `chaos` goes on; what came of it. */
async function underLoad(prefix: string, count: number, chaos: (load: Load) => Promise<void>, processes = PROCESSES) {
  const stop = new AbortController()
  const pods = await playNode(world.kube, 'default', stop.signal)
  await using running = new AsyncDisposableStack()
  const replicas = Array.from({ length: processes }, () => running.use(new Replica()))
  await Promise.all(replicas.map((replica) => replica.start().logged(({ msg }) => msg === 'started')))

  const first = Date.now() + LEAD_MS
  const due = new Map(
    Array.from({ length: count }, (_, i) => [`${prefix}-${i}`, first + Math.floor((i * SPREAD_MS) / count)]),
  )
  const allDone = async () => {
    await Promise.all([...due].map(([name, time]) => world.create(at(name, new Date(time)))))
    await until(() => areDone(prefix, count), 500)
  }
  try {
    await Promise.all([chaos({ replicas, random: randomFrom(SEED) }), allDone()])
  } finally {
    stop.abort()
  }
  return {
    due,
    pods: [...pods.values()].filter(({ name }) => name.startsWith(`${prefix}-`)),
    kills: sum(replicas.map((replica) => replica.kills)),
    cut: sum(replicas.map((replica) => replica.cut)),
    runs: replicas.flatMap((replica) => replica.runs()),
  }
}

async function areDone(prefix: string, count: number): Promise<boolean> {
  const done = (await world.ats()).filter(
    ({ metadata, status }) => metadata.name.startsWith(`${prefix}-`) && status?.phase === 'DONE',
  )
  return done.length === count
}

const sum = (numbers: number[]): number => numbers.reduce((total, number) => total + number, 0)

interface Came {
  due: Map<string, number>
  pods: SeenPod[]
  runs: RunInterval[]
}

function expectOnePodEach({ due, pods }: Came): void {
  const ofAt = Map.groupBy(pods, ({ owner }) => owner)
  const counted = [...due.keys()].map((name) => ({ name, pods: ofAt.get(name)?.length ?? 0 }))
  expect(counted.filter(({ pods: uids }) => uids !== 1)).toEqual([])
  expect(ofAt.size).toBe(due.size)
}

/**
 * The audit log of a request says nothing of what was stored if the server was killed before it wrote the line, or the
 * client while it waited for the answer (the line then has an error's code): there, it shows that no pod was created
 * twice, and the watch that each was.
 */
async function expectOneCreationEach({ due }: Came, { atMost = false } = {}): Promise<void> {
  const creations = await world.podCreations()
  const counted = [...due.keys()].map((name) => ({ name, created: creations.get(`${name}-pod`)?.length ?? 0 }))
  expect(counted.filter(({ created }) => created !== 1 && !(atMost && created === 0))).toEqual([])
  const early = [...due].filter(([name, time]) => creations.get(`${name}-pod`)?.some((created) => created < time))
  expect(early, 'pods created before their time').toEqual([])
}

const expectNoTwoAtOnce = ({ due, runs }: Came): void => {
  expect(runs.length).toBeGreaterThanOrEqual(2 * due.size)
  expect(overlaps(runs)).toEqual([])
}

describe(`Ats due over ten seconds, FAIRLEAD_CHAOS_SEED=${SEED}`, {
  timeout: PATIENCE_MS,
}, () => {
  it.each([
    { processes: 2, victims: 1, count: MANY },
    { processes: PROCESSES, victims: PROCESSES, count: SOME },
  ])(
    'all run exactly once while $victims of $processes processes are killed again and again ($count)',
    async (given) => {
      const { processes, victims, count } = given
      const killAgainAndAgain = async ({ replicas, random }: Load) => {
        for (let kill = 0; kill < KILLS; kill++) {
          await sleep(500 + random() * 1000)
          const victim = replicas[Math.floor(random() * victims)]!
          await victim.kill()
          victim.start()
        }
      }
      const came = await underLoad(`killed${victims}`, count, killAgainAndAgain, processes)
      console.log(`${came.kills} kills, which cut ${came.cut} of ${came.runs.length} runs short`)
      expectOnePodEach(came)
      await expectOneCreationEach(came, { atMost: true })
      expectNoTwoAtOnce(came)
    },
  )

  it(`all run exactly once while nats-server is killed again and again (${SOME})`, async () => {
    const came = await underLoad('nats', SOME, ({ random }) => killThrice('nats', random))
    expectOnePodEach(came)
    await expectOneCreationEach(came)
    expectNoTwoAtOnce(came)
  })

  it(`all run exactly once while kube-apiserver is killed again and again (${SOME})`, async () => {
    const came = await underLoad('api', SOME, ({ random }) => killThrice('kube-apiserver', random))
    expectOnePodEach(came)
    await expectOneCreationEach(came, { atMost: true })
    expectNoTwoAtOnce(came)
  })
})

async function killThrice(server: string, random: () => number): Promise<void> {
  await sleep(LEAD_MS)
  for (let kill = 0; kill < 3; kill++) {
    await sleep(500 + random() * 2000)
    await world.cluster.restart(server)
  }
}
