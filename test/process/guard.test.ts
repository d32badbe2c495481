import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type KubeClient, resourcePath } from '#kube'
import { installing, type World, worldOn } from '../e2e/world.ts'
import { until } from '../queue/support.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { type FairleadProcess, type LogLine, startFairlead } from '../support/fairlead.ts'

const MODULE = fileURLToPath(new URL('./naughty.ts', import.meta.url))
const NAUGHTIES = { group: 'test.fairlead.dev', version: 'v1', resource: 'naughties' }

let world: World
let kube: KubeClient
beforeAll(async () => {
  world = await worldOn(borrowCluster({ nats: true }), installing('-f', MODULE))
  kube = world.kube
})
// Each of them runs again and again as long as it is there.
afterEach(() => kube.request({ method: 'DELETE', path: resourcePath(NAUGHTIES, 'default') }))
afterAll(() => world?.[Symbol.asyncDispose]())

const up = (...more: string[]) => startFairlead(['up', '-f', MODULE, ...more], world.env)
const create = (name: string, does: string) =>
  kube.create(resourcePath(NAUGHTIES, 'default'), {
    apiVersion: 'test.fairlead.dev/v1',
    kind: 'Naughty',
    metadata: { name },
    spec: { does },
  })
const phaseOf = async (name: string) => {
  const { status } = await kube.get(resourcePath(NAUGHTIES, 'default', name))
  return (status as { phase?: string } | undefined)?.phase
}
const isDone = (name: string) => until(async () => expect(await phaseOf(name)).toBe('DONE'))
const doInstead = (name: string, does: string) =>
  kube.patch(resourcePath(NAUGHTIES, 'default', name), { spec: { does } }, 'merge')
const errorsOf = ({ logs }: FairleadProcess, name: string) =>
  logs.filter((line) => isErrorOf(name, line)).map(({ message }) => message)
const errorOf = (running: FairleadProcess, name: string) => running.logged((line) => isErrorOf(name, line))
const isErrorOf = (name: string, { step, key, result }: LogLine) =>
  step === 'finished' && result === 'error' && key === `default/${name}`

describe('what a function does wrong', () => {
  it('without stopping the process is an error of that run, and of no other', async () => {
    await using running = up()
    await create('rejects', 'leave a rejection')
    await create('throws', 'throw in a timer')
    await create('hangs', 'hang until told')
    expect(await errorOf(running, 'rejects')).toMatchObject({ message: 'from a promise' })
    expect(await errorOf(running, 'throws')).toMatchObject({ message: 'from a timer' })
    expect(await errorOf(running, 'hangs')).toMatchObject({ message: 'the function did not finish within 2 s' })
    await create('good', 'nothing')
    await isDone('good')
    running.kill('SIGTERM')
    expect(await running.exited).toMatchObject({ code: 0 })
  })

  it('by ignoring its signal ends the process after five time-outs, and others end their runs before', async () => {
    await using running = up('--grace-seconds', '3')
    await create('deaf', 'hang')
    await create('good-beside', 'nothing')
    await isDone('good-beside')
    const said = await running.logged(({ msg }) => msg.startsWith('a function ignores its signal'))
    expect(said).toMatchObject({ reconciler: 'naughty', key: 'default/deaf', seconds: 10 })
    expect(await running.exited).toMatchObject({ code: 5 })
    expect(errorsOf(running, 'deaf')).toEqual([])
  })

  it('by blocking the process ends that, says where, and from the third time on happens apart from it', async () => {
    await create('loops', 'loop')
    for (const time of ['first', 'second']) {
      await using running = up()
      const { code } = await running.exited
      expect([time, code]).toEqual([time, 5])
      const said = running.logs.find(({ msg }) => msg.startsWith('a function has blocked the process'))
      expect(said).toMatchObject({ reconciler: 'naughty', object: 'default/loops' })
      expect(running.logs.filter(({ msg }) => msg.startsWith('a function has '))).toEqual([said])
      expect(said?.['stack']).toContainEqual(expect.stringMatching(/^doIt .*naughty\.ts:\d+$/))
    }
    const { stdout } = await command(['explain', 'naughty/loops'], world.env)
    expect(stdout).toMatch(/Blocked at test\/process\/naughty\.ts:\d+:\d+: the function has/)
    await using running = up()
    await create('good-too', 'nothing')
    await isDone('good-too')
    expect(await errorOf(running, 'loops')).toMatchObject({
      // With its place, if the process has the time to tell: test/process/isolation.test.ts.
      message: expect.stringMatching(
        /^(Blocked at test\/process\/naughty\.ts:\d+:\d+: )?the function did not finish within 2 s$/,
      ),
    })
    await create('good-after-all', 'nothing')
    await isDone('good-after-all')
    running.kill('SIGTERM')
    expect(await running.exited).toMatchObject({ code: 0 })
  })

  it('by ending the process is told of with a code of its own, and happens apart from it until a run succeeds', async () => {
    await create('exits', 'exit')
    for (const time of ['first', 'second']) {
      await using running = up()
      const { code } = await running.exited
      expect([time, code]).toEqual([time, 5])
      const said = running.logs.find(({ msg }) => msg.startsWith('a function has ended the process'))
      expect(said).toMatchObject({ reconciler: 'naughty', object: 'default/exits', code: 0 })
      expect(said?.['underWay']).toContain('naughty default/exits')
    }
    {
      await using running = up()
      await running.logged(
        (line) => isErrorOf('exits', line) && line['message'] === 'the function ended its process: exit code 0',
      )
      running.kill('SIGTERM')
      expect(await running.exited).toMatchObject({ code: 0 })
    }
    await using running = up()
    await errorOf(running, 'exits')
    await doInstead('exits', 'nothing')
    await isDone('exits')
    running.kill('SIGTERM')
    expect(await running.exited).toMatchObject({ code: 0 })
  })

  it('by ending the process from outside of its call is told of by the keys that were under way', async () => {
    await using running = up()
    await create('exits-elsewhere', 'exit from elsewhere')
    expect(await running.exited).toMatchObject({ code: 5 })
    const said = running.logs.find(({ msg }) => msg.startsWith('a function has ended the process'))
    expect(said?.['underWay']).toContain('naughty default/exits-elsewhere')
  })
})
