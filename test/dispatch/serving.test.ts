import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { coverageId, RECONCILERS, reconcilerSpec, revisionsOf } from '#spec'
import { startHttpReceiver } from '../support/http-receiver.ts'
import { replacedMethods } from '../support/replaced-methods.ts'
import { CONFIG_MAPS, configMap, PODS, pod, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()

const conditionOf = async (name: string): Promise<Record<string, unknown> | undefined> => {
  const { status } = await fixture.kube.get(resourcePath(RECONCILERS, undefined, name))
  return (status as { conditions?: Record<string, unknown>[] } | undefined)?.conditions?.[0]
}

describe('a Reconciler', () => {
  it('is served when it comes, as it is changed, and not when it has gone', async () => {
    await using scene = await fixture.scene('comes', { spec: { owns: [PODS] } })
    expect(scene.dispatcher.serving()).toEqual(['comes'])
    await scene.widget('a', () => ({ apply: [configMap('a-config')] }))
    expect(await scene.ended('a')).toMatchObject({ result: 'terminal' })

    const changed = scene.reconciler({ owns: [PODS, CONFIG_MAPS] })
    changed.metadata.resourceVersion = '2'
    await fixture.events.put(RECONCILERS, 'modified', changed)
    await until(async () => (await scene.run('a')).result === 'success')
    expect(await scene.get(CONFIG_MAPS, 'a-config')).toBeDefined()

    await fixture.events.put(RECONCILERS, 'deleted', {
      ...changed,
      metadata: { ...changed.metadata, resourceVersion: '3' },
    })
    await until(() => scene.dispatcher.serving().length === 0)
    await scene.enqueue('a')
    expect(await scene.queue.depth('comes')).toMatchObject({ queued: 1, running: 0 })
  })

  it('without its function is named in a line, which is a warning with the fix where this process could have the function', async () => {
    const lines: [level: string, fields: object][] = []
    const noted = (level: string) => (fields: object) => void lines.push([level, fields])
    const log = { debug: noted('debug'), info: noted('info'), warn: noted('warn'), error: noted('error') }
    const fixForMissing = (name: string) => (name === 'missing' ? 'add it' : undefined)
    for (const name of ['missing', 'of-others']) {
      const dispatcher = { functions: new Map(), fixForMissing, log }
      const scene = await fixture.scene(name, { dispatcher, waitFor: false })
      await until(() => lines.some(([, fields]) => 'reconciler' in fields && fields.reconciler === name))
      await scene.stop()
    }
    expect(lines).toContainEqual(['warn', { reconciler: 'missing', fix: 'add it' }])
    expect(lines).toContainEqual(['info', { reconciler: 'of-others' }])
  })

  it('is not served before everything of its resources has been stored for it', async () => {
    await using scene = await fixture.scene('unsynced', {
      spec: { owns: [PODS, { ...PODS, resource: 'services', kind: 'Service' }] },
      waitFor: false,
    })
    const services = { group: '', version: 'v1', resource: 'services' }
    let calls = 0
    await scene.widget('a', () => {
      calls++
      return {}
    })
    const at = '2030-01-01T00:00:00Z'
    await fixture.events.setCursor(services, undefined, { resourceVersion: '1', at, covers: ['another@one'] })
    expect([calls, scene.dispatcher.serving()]).toEqual([0, []])
    await fixture.events.setCursor(services, undefined, { resourceVersion: '2', at, covers: [scene.coverage()] })
    await until(() => calls === 1)
  })

  it.each([
    ['no-address', { invoke: { http: { url: 'fn:8080' } } }, 'InvalidSpec', 'spec.invoke.http.url: fn:8080'],
    ['bad-selector', { for: { ...WIDGETS, selector: '=' } }, 'InvalidSpec', 'spec.for.selector'],
  ])('that asks for what is not there is refused on the object: %s', async (name, spec, reason, message) => {
    await using scene = await fixture.scene(name, { waitFor: false, object: await fixture.reconciler(name, spec) })
    await until(async () => (await conditionOf(name)) !== undefined)
    expect(await conditionOf(name)).toMatchObject({
      type: 'Ready',
      status: 'False',
      reason,
      message: expect.stringContaining(message),
    })
    expect(scene.dispatcher.serving()).toEqual([])
  })
})

describe('the dispatcher', () => {
  it('never has more API requests in flight than its limit, with any number of keys in hand', async () => {
    let inFlight = 0
    let most = 0
    const atLimit = Promise.withResolvers<void>()
    const counted = async (send: () => Promise<never>) => {
      most = Math.max(most, ++inFlight)
      if (inFlight >= 3) atLimit.resolve()
      // None is answered before as many as the limit are in flight.
      await atLimit.promise
      return send().finally(() => inFlight--)
    }
    const limited = replacedMethods(fixture.kube, (own) => ({
      create: (...request) => counted(() => own.create<never>(...request)),
      apply: (...request) => counted(() => own.apply<never>(...request)),
      patch: (...request) => counted(() => own.patch<never>(...request)),
      get: (...request) => counted(() => own.get<never>(...request)),
    }))
    await using scene = await fixture.scene('limited', { dispatcher: { kube: limited, apiConcurrency: 3 } })
    const names = Array.from({ length: 30 }, (_, index) => `w${index}`)
    await Promise.all(
      names.map((name) =>
        scene.widget(name, () => ({
          apply: [pod(`${name}-pod`), configMap(`${name}-config`)],
          status: { phase: 'DONE' },
        })),
      ),
    )
    await Promise.all(names.map((name) => scene.ended(name)))
    expect(most).toBe(3)
    expect(scene.steps.filter((step) => step.step === 'written')).toHaveLength(90)
  })

  it('keeps a function that hangs to its time-out, and others going', async () => {
    await using scene = await fixture.scene('hangs', { spec: { timeoutSeconds: 5 } })
    const aborted: string[] = []
    await scene.widget('hangs', (_, { signal }) => {
      return new Promise((_, reject) =>
        signal.addEventListener('abort', () => {
          aborted.push((signal.reason as Error).message)
          reject(new Error('given up'))
        }),
      )
    })
    await scene.widget('goes', () => ({ status: { phase: 'DONE' } }))
    expect((await scene.ended('goes')).result).toBe('success')
    expect(scene.steps.some((step) => step.step === 'finished' && step.key.endsWith('hangs'))).toBe(false)
    expect(await scene.ended('hangs')).toMatchObject({
      result: 'error',
      message: 'the function did not finish within 5 s',
    })
    expect(aborted).toEqual(['the function did not finish within 5 s'])
    scene.behave('hangs', () => ({}))
  })

  it.each([
    ['its time-out', 'deaf', { timeoutSeconds: 1 }, () => Promise.resolve()],
    [
      'the loss of its lease',
      'robbed',
      {},
      async (name: string) => {
        await fixture.js.admin.streams.purge(`${name}_WORK`, { filter: `${name}.key.>` })
      },
    ],
  ])('never begins a call of a key while one of this process goes on after %s', async (_, name, spec, disturb) => {
    await using scene = await fixture.scene(name, { queue: { leaseMs: 6000 }, spec })
    const goesOn = Promise.withResolvers<void>()
    const ignored = Promise.withResolvers<void>()
    const calls = { now: 0, most: 0, begun: 0 }
    await scene.widget('a', async (_input, { signal }) => {
      calls.begun++
      calls.most = Math.max(calls.most, ++calls.now)
      signal.addEventListener('abort', () => ignored.resolve())
      if (calls.begun === 1) await goesOn.promise
      calls.now--
      return { status: { phase: 'DONE' } }
    })
    await until(() => calls.begun === 1)
    await disturb(name)
    await ignored.promise
    await scene.widget('b', () => ({}))
    await scene.enqueue('a')
    expect((await scene.ended('b')).result).toBe('success')
    const [held] = scene.stepsOf('a').filter((step) => step.step === 'started')
    await until(() => Date.now() > (held?.leaseUntil.getTime() ?? 0) + 900)
    expect(calls).toMatchObject({ begun: 1, most: 1 })
    expect(scene.dispatcher.calls()).toEqual([{ reconciler: name, key: `${name}.a` }])
    goesOn.resolve()
    await until(async () => (await scene.get(WIDGETS, 'a'))?.status !== undefined)
    expect(calls.most).toBe(1)
  })

  it('writes nothing for a run that has lost its lease', async () => {
    await using scene = await fixture.scene('fenced', { queue: { leaseMs: 900 } })
    let lost: unknown
    await scene.widget('a', async (_, { signal }) => {
      await fixture.js.admin.streams.purge('fenced_WORK', { filter: 'fenced.key.>' })
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      lost = signal.reason
      scene.behave('a', () => ({ status: { by: 'the second run' } }))
      return { apply: [pod('a-pod')], status: { by: 'the first run' } }
    })
    expect((await scene.ended('a')).result).toBe('fenced')
    expect(lost).toMatchObject({ name: 'LeaseLostError' })
    await until(() => scene.writes('a').length > 0)
    expect(scene.writes('a')).toEqual(['status Widget a'])
    expect((await scene.get(WIDGETS, 'a'))?.status).toMatchObject({ by: 'the second run' })
  })

  it('does not count an echo as settled once the run that wrote it has lost its lease', async () => {
    await using scene = await fixture.scene('echoes', { queue: { leaseMs: 6000 } })
    const settled: Record<string, boolean> = {}
    let origin = ''
    const needsNoRun = () => scene.dispatcher.needsNoRun({ reconciler: 'echoes', key: 'echoes.a', origin })
    await scene.widget('a', async ({ owned }, { signal }) => {
      if (owned['Pod.v1']?.length === 0) return { apply: [pod('a-pod')] }
      const query = { primary: { ref: PODS, namespace: 'echoes', name: 'a-pod' } }
      origin = (await fixture.events.observe(query)).primary?.origin ?? ''
      settled['during the lease'] = needsNoRun()
      await fixture.js.admin.streams.purge('echoes_WORK', { filter: 'echoes.key.>' })
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      settled['after the lease'] = needsNoRun()
      scene.behave('a', () => ({}))
      return {}
    })
    expect((await scene.ended('a')).result).toBe('fenced')
    settled['after the run'] = needsNoRun()
    expect(settled).toEqual({ 'during the lease': true, 'after the lease': false, 'after the run': false })
  })

  it('writes nothing for a run that was held up beyond its lease before anybody could tell it', async () => {
    await using scene = await fixture.scene('stalled', { queue: { leaseMs: 900 } })
    let stalledUntil = 0
    await scene.widget('a', () => {
      scene.behave('a', () => ({ status: { by: 'the second run' } }))
      stalledUntil = Date.now() + 1500
      while (Date.now() < stalledUntil);
      return { apply: [pod('a-pod')], status: { by: 'the first run' } }
    })
    await until(() => scene.writes('a').length > 0)
    expect(scene.stepsOf('a').find((step) => step.step === 'finished')).toMatchObject({ result: 'fenced' })
    const ended = scene.stepsOf('a').find((step) => step.step === 'ended')
    expect(ended?.leaseUntil.getTime()).toBeLessThan(stalledUntil)
    expect(scene.writes('a')).toEqual(['status Widget a'])
    expect((await scene.get(WIDGETS, 'a'))?.status).toMatchObject({ by: 'the second run' })
  })

  it('hands back what has not ended when it drains', async () => {
    const scene = await fixture.scene('drains', { graceMs: 50 })
    let started = false
    await scene.widget('slow', async (_, { signal }) => {
      started = true
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      return { status: { phase: 'DONE' } }
    })
    await until(() => started)
    await scene.stop()
    expect(await scene.queue.depth('drains')).toMatchObject({ queued: 1, running: 0 })
    expect((await scene.get(WIDGETS, 'slow'))?.status).toBeUndefined()
  })

  it('lets things go in a namespace that is being deleted', async () => {
    await using scene = await fixture.scene('closing')
    await scene.widget('a', () => ({}))
    await scene.ended('a')
    await fixture.kube.delete(`/api/v1/namespaces/${scene.name}`)
    const from = scene.steps.length
    scene.behave('a', () => ({ apply: [pod('a-pod')] }))
    expect(await scene.run('a')).toMatchObject({
      result: 'error',
      message: expect.stringContaining('being terminated'),
    })
    expect(scene.writes('a')).toEqual([])
    const armed = scene.steps.slice(from).find((step) => step.step === 'armed')!
    expect(armed.at.getTime() - Date.now()).toBeGreaterThan(30_000)
  })
})

describe('the revisions of a function', () => {
  const currentOf = (name: string) => fixture.kube.get<KubeObject>(resourcePath(RECONCILERS, undefined, name))
  const namesOf = (object: KubeObject) => revisionsOf(object).map((revision) => revision.name)

  /** A Reconciler of the API server's. `tell` is what a bridge would do: it resolves with the coverage ID of what it has stored. */
  async function reconciler(name: string, spec: object) {
    const object = await fixture.reconciler(name, spec)
    const tell = async () => {
      const current = await currentOf(name)
      await fixture.events.put(RECONCILERS, 'modified', current)
      return coverageId(current, reconcilerSpec.parse(current['spec']))
    }
    const records = (...names: string[]) =>
      until(async () => {
        await tell()
        return namesOf(await currentOf(name)).join() === names.join()
      })
    return { object, tell, records }
  }

  it('old and new revisions that answer in turn have every object run again once, and what the old one ran later once', async () => {
    let revision = 'r1'
    await using server = await startHttpReceiver((_, response) =>
      response.writeHead(204, { 'fairlead-function': 'revisions', 'fairlead-revision': revision }).end(),
    )
    const { object, tell, records } = await reconciler('revisions', { invoke: { http: { url: server.url } } })
    await using scene = await fixture.scene('revisions', { object })
    await scene.widget('a', () => ({}))
    await records('r1')
    const ids = new Set([await tell()])
    for (const name of ['r2', 'r1', 'r2', 'r1', 'r2']) {
      revision = name
      const from = scene.steps.length
      const { result } = await scene.run('a')
      await records('r1', 'r2')
      ids.add(await tell())
      const armed = scene.steps.slice(from).find((step) => step.step === 'armed')
      const recordedAt = Date.parse(revisionsOf(await currentOf('revisions'))[1]?.at ?? '')
      const minutes = armed && (armed.at.getTime() - recordedAt) / 60_000
      const isRepeated = minutes !== undefined && minutes >= 10 && minutes <= 11
      expect([name, result, isRepeated]).toEqual(
        name === 'r1' ? ['r1', 'requeue_after', true] : ['r2', 'success', false],
      )
    }
    expect(ids.size).toBe(2)
  })

  it('the revision of functions in a process is recorded by their runs, unless the author has given one', async () => {
    const pull = { invoke: { pull: {} } }
    const { object, records } = await reconciler('in-process', pull)
    const scene = await fixture.scene('in-process', { object, dispatcher: { revision: 'sha256:1' } })
    await scene.widget('a', () => ({}))
    await records('sha256:1')
    await scene.stop()

    const given = await reconciler('by-hand', { ...pull, revision: 'by hand' })
    const other = await fixture.scene('by-hand', { object: given.object, dispatcher: { revision: 'sha256:1' } })
    await other.widget('a', () => ({}))
    expect((await other.ended('a')).result).toBe('success')
    await other.stop()
    expect(namesOf(await currentOf('by-hand'))).toEqual([])
  })
})
