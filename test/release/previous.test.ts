import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  expectNoTwoAtOnce,
  expectOneCreationEach,
  expectOnePodEach,
  PATIENCE_MS,
  Replica,
  SEED,
  underLoad,
} from '../e2e/chaos.ts'
import { startWorld, type World } from '../e2e/world.ts'
import { PACKED_WITHIN_MS } from '../support/package.ts'
import { previousRelease, type Release, TREE } from './previous-release.ts'

let previous: Release
let world: World
let replicas: Replica[]

/** The previous release has no option for its built-in functions, and runs all of them. */
const builtinOf = (release: Release) => (release === TREE ? ['--builtin', 'all'] : [])
const install = async (release: Release, env: Record<string, string>) => {
  const { code, stderr } = await release.run(['install', ...builtinOf(release)], env)
  expect([release.version, code, stderr]).toEqual([release.version, 0, expect.anything()])
}
const processOf = (release: Release) => () => release.start(['up', ...builtinOf(release)], world.env)

beforeAll(async () => {
  previous = await previousRelease()
  world = await startWorld({}, (env) => install(previous, env))
  replicas = [0, 1].map(() => new Replica(processOf(previous)))
  await Promise.all(replicas.map((replica) => replica.start().logged(({ msg }) => msg === 'started')))
}, PACKED_WITHIN_MS)
afterAll(async () => {
  await Promise.all(replicas.map((replica) => replica.kill()))
  await world[Symbol.asyncDispose]()
})

interface Step {
  name: string
  to: () => Release
  /** Definitions and Reconcilers are changed first. */
  installs?: boolean
  replica: 0 | 1
  signal: NodeJS.Signals
}

const STEPS: Step[] = [
  { name: 'upgrade-first', to: () => TREE, installs: true, replica: 0, signal: 'SIGTERM' },
  { name: 'upgrade-second', to: () => TREE, replica: 1, signal: 'SIGKILL' },
  { name: 'back-first', to: () => previous, installs: true, replica: 0, signal: 'SIGKILL' },
  { name: 'back-second', to: () => previous, replica: 1, signal: 'SIGTERM' },
]

describe(`two processes, of the previous release and of this one, FAIRLEAD_CHAOS_SEED=${SEED}`, {
  timeout: PATIENCE_MS,
}, () => {
  it.each(STEPS)(
    'lose and double nothing while one is replaced: $name',
    async ({ name, to, installs, replica, signal }) => {
      const load = { world, replicas, prefix: name, count: 40, spreadMs: 4000 }
      const came = await underLoad(load, async () => {
        if (installs === true) await install(to(), world.env)
        await replicas[replica]?.replace(signal, processOf(to()))
      })
      expectOnePodEach(came)
      await expectOneCreationEach(came)
      expectNoTwoAtOnce(came)
    },
  )
})
