import { CloudEvent } from 'cloudevents'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { declareRuns, fromNats, NoRunsError, runSender, type StoredRun, viewRuns } from '#events'
import { RunHistory } from '../../../cli/process/history.ts'
import { configMap, startFixture, until } from '../../dispatch/fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>
beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

/** A dispatcher whose runs are recorded under a prefix of its own. */
async function recordedScene(name: string) {
  const { js } = fixture
  const dropped: string[] = []
  const history = new RunHistory({
    connection: js,
    declare: () => declareRuns(js, { prefix: name }),
    send: runSender(js, name, 'test'),
    process: 'vm-1',
    dropped: (reconciler) => dropped.push(reconciler),
    log: { warn: () => undefined },
  })
  const stop = new AbortController()
  const running = history.run(stop.signal)
  const runs = viewRuns(js, name)
  await until(() =>
    runs.end().then(
      () => true,
      () => false,
    ),
  )
  const scene = await fixture.scene(name, { dispatcher: { ended: (run) => history.ended(run) } })
  const recorded = async (object: string): Promise<StoredRun[]> => {
    const found: StoredRun[] = []
    for await (const run of runs.list({ reconciler: name, namespace: name, name: object })) found.push(run)
    return found
  }
  const afterRun = async (object: string, count: number) => {
    await until(async () => (await recorded(object)).length >= count)
    return recorded(object)
  }
  const end = async () => {
    stop.abort()
    await running
    await scene.stop()
  }
  return { scene, runs, recorded, afterRun, dropped, [Symbol.asyncDispose]: end }
}

describe('RUNS', () => {
  it('is not compressed, nor stays so: a killed nats-server may lose its replica of a compressed stream', async () => {
    const { js } = fixture
    const [prefix, stream] = ['runs-plain', 'runs-plain_RUNS']
    await declareRuns(js, { prefix })
    const { config } = await js.admin.streams.info(stream)
    expect(config.compression).toBe('none')
    await js.admin.streams.update(stream, { compression: 's2' })
    await declareRuns(js, { prefix, raiseReplicas: true })
    expect((await js.admin.streams.info(stream)).config).toEqual(config)
  })

  it('has one CloudEvent of a run that has written, with what it saw, returned, wrote and why it came', async () => {
    const name = 'runs-written'
    await using recorded = await recordedScene(name)
    let size = 1
    await recorded.scene.widget('w', (_, { log }) => {
      log.info({ size }, 'sets the size')
      return { apply: [configMap('c', { size: `${size}` })], status: { size } }
    })
    await recorded.scene.ended('w')
    const [first] = await recorded.afterRun('w', 1)
    expect(first?.record).toMatchObject({
      reconciler: name,
      namespace: name,
      name: 'w',
      process: 'vm-1',
      result: 'success',
    })
    expect(first?.record.laps.flatMap(({ writes }) => writes.map(({ verb, kind }) => `${verb} ${kind}`))).toEqual([
      'apply ConfigMap',
      'status Widget',
    ])
    expect(first?.record.laps[0]).toMatchObject({ outcome: { status: { size: 1 } } })
    expect(first?.record.log?.lines[0]).toMatchObject({ level: 'info', message: 'sets the size', fields: { size: 1 } })
    expect(first?.record.log?.lines).toHaveLength(first?.record.laps.length ?? 0)

    size = 2
    await fixture.kube.patch(`/apis/test.fairlead.dev/v1/namespaces/${name}/widgets/w`, { spec: { a: 1 } }, 'merge')
    await recorded.scene.see({ group: 'test.fairlead.dev', version: 'v1', resource: 'widgets' }, 'w')
    const cause = `modified Widget.v1.test.fairlead.dev ${name}/w@7`
    await recorded.scene.run('w', { cause })
    const [, second] = await recorded.afterRun('w', 2)
    expect(second?.record.causes).toEqual([cause])
    const apply = second?.record.laps.flatMap(({ writes }) => writes).find(({ verb }) => verb === 'apply')
    expect(apply?.differences).toContainEqual({ path: '.data.size', before: '1', after: '2' })

    const message = await fixture.js.bySequence(recorded.runs.stream, first!.sequence)
    expect(message?.subject).toBe(`${name}.runs.${name}.${name}.w`)
    // The constructor compares the event with the official schema.
    const event = new CloudEvent(fromNats({ headers: message!.headers, data: message!.data }))
    const { id, type, source, subject } = event
    expect({ id, type, source, subject }).toEqual({
      id: first?.record.id,
      type: 'dev.fairlead.run.ended',
      source: 'https://test/runs',
      subject: `${name}/${name}/w`,
    })
  })

  it('has no run that changed nothing, and each that failed, with why', async () => {
    await using recorded = await recordedScene('runs-failed')
    let isFailing = false
    await recorded.scene.widget('w', () => {
      if (isFailing) throw new Error('no route to host')
      return {}
    })
    await recorded.scene.ended('w')
    isFailing = true
    await recorded.scene.run('w')
    const [run] = await recorded.afterRun('w', 1)
    expect(run?.record).toMatchObject({
      result: 'error',
      message: 'no route to host',
      laps: [{ error: 'no route to host' }],
    })
    expect(run?.record.requeueAt).toBeDefined()
  })

  it('keeps the last 20 runs of an object', async () => {
    await using recorded = await recordedScene('runs-limited')
    let size = 0
    await recorded.scene.widget('w', () => ({ status: { size } }))
    await recorded.scene.ended('w')
    for (size = 1; size <= 22; size++) await recorded.scene.run('w')
    await until(async () => (await recorded.recorded('w')).at(-1)?.record.laps[0]?.outcome?.status?.['size'] === 22)
    expect(await recorded.recorded('w')).toHaveLength(20)
  })

  it('delays and fails no run when somebody has deleted it', async () => {
    await using recorded = await recordedScene('runs-deleted')
    let size = 0
    await recorded.scene.widget('w', () => ({ status: { size } }))
    await recorded.scene.ended('w')
    await fixture.js.admin.streams.delete(recorded.runs.stream)
    for (size = 1; size <= 5; size++) expect(await recorded.scene.run('w')).toMatchObject({ result: 'success' })
    const { status } = (await recorded.scene.get(
      { group: 'test.fairlead.dev', version: 'v1', resource: 'widgets' },
      'w',
    ))!
    expect(status).toMatchObject({ size: 5 })
    await expect(recorded.recorded('w')).rejects.toThrow(NoRunsError)
  })

  it('drops the oldest runs when it is full, and delays and fails none', async () => {
    await using recorded = await recordedScene('runs-full')
    await fixture.js.admin.streams.update(recorded.runs.stream, { max_bytes: 16_384 })
    let size = 0
    await recorded.scene.widget('w', () => ({ status: { size, text: 'x'.repeat(1000) } }))
    await recorded.scene.ended('w')
    for (size = 1; size <= 5; size++) expect(await recorded.scene.run('w')).toMatchObject({ result: 'success' })
    await until(async () => (await recorded.recorded('w')).at(-1)?.record.laps[0]?.outcome?.status?.['size'] === 5)
    expect((await recorded.recorded('w')).length).toBeLessThan(6)
  })
})
