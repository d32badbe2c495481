import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { freePorts } from '../../packages/lab/ports.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { type FairleadProcess, type LogLine, startFairlead } from '../support/fairlead.ts'
import { at, until, type World, worldOn } from './world.ts'

const LONG_AGO = new Date('2019-04-12T10:12:00Z')

describe('the function of Ats, served over HTTP by a process of its own', () => {
  let world: World
  let up: FairleadProcess
  let fn: FairleadProcess
  let port: number

  const serveAt = async (wanted: number): Promise<number> => {
    fn = startFairlead(['serve', 'at', '--port', String(wanted)], {})
    return Number((await fn.logged(({ msg }) => msg === 'serving'))['port'])
  }
  const hasPod = (name: string) =>
    until(async () => (await world.pods()).some(({ metadata }) => metadata.name === `${name}-pod`))

  beforeAll(async () => {
    // No other process takes it while the function is away.
    const [free = 0] = await freePorts(1)
    ;[world, port] = await Promise.all([worldOn(borrowCluster({ nats: true })), serveAt(free)])
    const invoke = { http: { url: `http://127.0.0.1:${port}` }, pull: null }
    await world.kube.patch(resourcePath(RECONCILERS, undefined, 'at'), { spec: { invoke } }, 'merge')
    up = startFairlead(['up', '--builtin', 'all'], world.env)
  })
  afterAll(async () => {
    await up?.[Symbol.asyncDispose]()
    await fn?.[Symbol.asyncDispose]()
    await world?.[Symbol.asyncDispose]()
  })

  it('makes the pod of an At that is due', async () => {
    await world.create(at('first', LONG_AGO))
    await hasPod('first')
  })

  it('may be killed and started again: what became due meanwhile is run then, and nothing is counted as its failure', async () => {
    fn.kill('SIGKILL')
    await fn.exited
    await world.create(at('second', LONG_AGO))
    const isOfSecond = ({ msg, key }: LogLine) => msg === 'run failed' && key === 'default/second'
    await up.logged(isOfSecond)
    const message = expect.stringContaining(`the function at http://127.0.0.1:${port} cannot be reached`) as string
    expect(up.logs.find(isOfSecond)?.['err']).toEqual({ type: 'FunctionError', message })
    await serveAt(port)
    await hasPod('second')
    const attempts = up.logs.filter(({ step, key }) => step === 'started' && key === 'default/second')
    expect(attempts.length).toBeGreaterThan(1)
    expect(attempts.map(({ attempt }) => attempt)).toEqual(attempts.map(() => 0))
  })

  it('says on the object what the function refuses, and ends with 0 when it is told to', async () => {
    await world.create({ ...at('bad', LONG_AGO), spec: { schedule: 'tomorrow', command: 'true' } })
    await until(async () => {
      const bad = (await world.ats()).find(({ metadata }) => metadata.name === 'bad')
      return bad?.status?.conditions?.some(({ reason }) => reason === 'InvalidSchedule') === true
    })
    fn.kill('SIGTERM')
    expect((await fn.exited).code).toBe(0)
  })
})
