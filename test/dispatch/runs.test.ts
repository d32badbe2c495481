import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ConflictError, type KubeObject, type Outcome, RetryAfterError, TerminalError } from '#contracts'
import { resourcePath } from '#kube'
import { CONFIG_MAPS, configMap, PODS, pod, startFixture, until, WIDGETS } from './fixture.ts'
import { createdFor, ownedByWidget } from './objects.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>
let scene: Awaited<ReturnType<typeof fixture.scene>>
const owner = (name: string) => ({ resource: 'widgets', name })

beforeAll(async () => {
  fixture = await startFixture()
  scene = await fixture.scene('runs')
})
afterAll(async () => {
  await scene?.stop()
  await fixture?.[Symbol.asyncDispose]()
})

/** Creates an object as another client. */
const create = (ref: typeof PODS | typeof CONFIG_MAPS, object: object): Promise<KubeObject> =>
  fixture.kube.create(resourcePath(ref, scene.name), object)

const remove = (ref: typeof PODS | typeof CONFIG_MAPS | typeof WIDGETS, name: string) =>
  fixture.kube.delete(resourcePath(ref, scene.name, name), { gracePeriodSeconds: 0 })

const READY = { type: 'Ready', status: 'True', reason: 'Up' } as const

describe('a run', () => {
  it('creates what is wanted and writes the status, in one run; the next one sends nothing', async () => {
    const seen: number[] = []
    const requests = await scene.requestsDuring(async () => {
      await scene.widget('once', ({ owned }) => {
        seen.push(owned['Pod.v1']!.length)
        return { apply: [pod('once-pod'), configMap('once-config')], status: { phase: 'RUNNING' } }
      })
      expect((await scene.ended('once')).result).toBe('success')
    })
    expect(requests.slice(1)).toEqual([
      'PATCH configmaps/once-config 201',
      'POST pods 201',
      'PATCH widgets/once/status 200',
    ])
    expect(seen).toEqual([0, 1, 1])
    const [child, widget] = [await scene.get(PODS, 'once-pod'), await scene.get(WIDGETS, 'once')]
    expect(child?.metadata.ownerReferences).toEqual([{ ...ownedByWidget(widget?.metadata.uid), name: 'once' }])
    expect(widget?.status).toEqual({ phase: 'RUNNING', observedGeneration: 1 })
    expect(await scene.requestsDuring(() => scene.run('once'))).toEqual([])
  })

  it('sees what the run before it wrote, without waiting for the watch', async () => {
    await scene.widget('own', () => ({ apply: [pod('own-pod')], status: { n: 1 } }))
    await scene.ended('own')
    let seen: unknown
    scene.behave('own', ({ object, owned }) => {
      seen = [object?.status, owned['Pod.v1']!.map(({ metadata }) => metadata.name)]
      return {}
    })
    await scene.run('own')
    expect(seen).toEqual([{ n: 1, observedGeneration: 1 }, ['own-pod']])
  })

  it('deletes what is owned and not wanted any more, and nothing else', async () => {
    await scene.widget('prune', () => ({ apply: [configMap('prune-a'), configMap('prune-b'), pod('prune-pod')] }))
    await scene.ended('prune')
    await create(CONFIG_MAPS, configMap('prune-foreign'))
    scene.behave('prune', () => ({ apply: [configMap('prune-b')] }))
    await scene.run('prune')
    expect(await scene.get(CONFIG_MAPS, 'prune-a')).toBeUndefined()
    expect((await scene.get(PODS, 'prune-pod'))?.metadata.deletionTimestamp).toBeUndefined()
    expect(await scene.get(PODS, 'prune-pod')).toBeUndefined()
    expect(await scene.get(CONFIG_MAPS, 'prune-b')).toBeDefined()
    expect(await scene.get(CONFIG_MAPS, 'prune-foreign')).toBeDefined()
  })

  it('looks again before it deletes what has changed since it was observed', async () => {
    await scene.widget('careful', () => ({ apply: [configMap('careful-config')] }))
    await scene.ended('careful')
    const path = resourcePath(CONFIG_MAPS, scene.name, 'careful-config')
    await fixture.kube.patch(path, { data: { precious: 'yes' } }, 'merge')
    const seen: unknown[] = []
    scene.behave('careful', ({ owned }) => {
      const [config] = owned['ConfigMap.v1']!
      seen.push(config?.['data'])
      return { apply: (config?.['data'] as Record<string, string> | undefined)?.['precious'] ? [config!] : [] }
    })
    expect((await scene.run('careful')).result).toBe('success')
    expect(seen).toContainEqual({ precious: 'yes' })
    expect(await scene.get(CONFIG_MAPS, 'careful-config')).toMatchObject({ data: { precious: 'yes' } })
  })

  it('repairs drift, and removes a field that is no longer wanted', async () => {
    await scene.widget('drift', () => ({ apply: [configMap('drift-config', { a: '1', b: '2' })] }))
    await scene.ended('drift')
    await fixture.kube.patch(
      resourcePath(CONFIG_MAPS, scene.name, 'drift-config'),
      { data: { a: 'x', c: '3' } },
      'merge',
    )
    await scene.see(CONFIG_MAPS, 'drift-config', owner('drift'))
    scene.behave('drift', () => ({ apply: [configMap('drift-config', { a: '1' })] }))
    await scene.run('drift')
    expect(await scene.get(CONFIG_MAPS, 'drift-config')).toMatchObject({ data: { a: '1', c: '3' } })
    expect((await scene.get(CONFIG_MAPS, 'drift-config'))?.['data']).not.toHaveProperty('b')
    expect(await scene.requestsDuring(() => scene.run('drift'))).toEqual([])
  })

  it('decides again at once when the object has changed under its status', async () => {
    const seen: unknown[] = []
    await scene.widget('moved', async ({ object }) => {
      seen.push((object!.spec as { size?: number }).size)
      if (seen.length === 1) {
        const path = resourcePath(WIDGETS, scene.name, 'moved')
        await fixture.kube.patch(path, { spec: { size: 2 } }, 'merge')
      }
      return { status: { size: (object!.spec as { size?: number }).size ?? 0 } }
    })
    expect((await scene.ended('moved')).result).toBe('success')
    expect(seen).toEqual([undefined, 2, 2])
    expect(scene.writes('moved')).toEqual(['status Widget moved'])
    expect((await scene.get(WIDGETS, 'moved'))?.status).toEqual({ size: 2, observedGeneration: 2 })
  })

  it('does not write a status that a change has overtaken while it waited for its turn', async () => {
    const finishPod = async () => {
      const path = `${resourcePath(PODS, scene.name, 'overtaken-pod')}/status`
      await fixture.kube.patch(path, { status: { phase: 'Succeeded' } }, 'merge')
      await scene.see(PODS, 'overtaken-pod', owner('overtaken'))
      scene.queue.announce('runs', 'runs.overtaken')
    }
    await scene.widget('overtaken', async ({ owned }) => {
      const [child] = owned['Pod.v1']!
      if (child === undefined) return { apply: [pod('overtaken-pod')] }
      if ((child.status as { phase?: string }).phase === 'Succeeded') return { status: { phase: 'DONE' } }
      await finishPod()
      return { status: { phase: 'RUNNING' } }
    })
    await scene.ended('overtaken')
    expect(scene.stepsOf('overtaken').filter(({ step }) => step === 'dropped')).toHaveLength(1)
    expect(scene.writes('overtaken')).toEqual(['create Pod overtaken-pod', 'status Widget overtaken'])
    expect((await scene.get(WIDGETS, 'overtaken'))?.status).toMatchObject({ phase: 'DONE' })
  })

  it('removes a condition when the function returns it with the status null', async () => {
    const conditions = [{ type: 'Migrating', status: 'True', reason: 'Copying' } as const, READY]
    await scene.widget('migrates', () => ({ conditions }))
    await scene.ended('migrates')
    expect(await scene.condition('migrates', 'Migrating')).toMatchObject({ reason: 'Copying' })
    scene.behave('migrates', () => ({ conditions: [{ type: 'Migrating', status: null }] }))
    expect((await scene.run('migrates')).result).toBe('success')
    expect(await scene.condition('migrates', 'Migrating')).toBeUndefined()
    expect(await scene.condition('migrates', 'Ready')).toMatchObject(READY)
    expect(await scene.requestsDuring(() => scene.run('migrates'))).toEqual([])
  })

  it('leaves an object alone that is being deleted, or gone, or not selected', async () => {
    let calls = 0
    const count = () => {
      calls++
      return {}
    }
    const path = resourcePath(WIDGETS, scene.name, 'going')
    await scene.widget('going', count)
    await scene.ended('going')
    await fixture.kube.patch(path, { metadata: { finalizers: ['test.fairlead.dev/hold'] } }, 'merge')
    await fixture.kube.delete(path)
    await scene.see(WIDGETS, 'going')
    expect((await scene.run('going')).result).toBe('success')
    scene.behave('never-there', count)
    expect((await scene.run('never-there')).result).toBe('success')
    expect(calls).toBe(1)
  })

  it('ends when the object turns out to be gone at its status write', async () => {
    await scene.widget('vanished', async ({ object }) => {
      if (object?.status === undefined) await remove(WIDGETS, 'vanished')
      return { status: { phase: 'DONE' } }
    })
    expect((await scene.ended('vanished')).result).toBe('success')
    expect(await scene.get(WIDGETS, 'vanished')).toBeUndefined()
  })

  it('runs again when it asked for it', async () => {
    const times: number[] = []
    await scene.widget('again', () => {
      times.push(Date.now())
      return times.length < 3 ? { requeueAfterSeconds: 0.05 } : {}
    })
    await until(() => times.length === 3)
  })
})

it('runs again in time when its clock was set back during the run that asked for it', async () => {
  let stepped = 0
  const now = () => Date.now() + stepped
  const stepping = await fixture.scene('stepping', { queue: { now }, dispatcher: { now: () => new Date(now()) } })
  let calls = 0
  await stepping.widget('again', () => {
    stepped = -3_600_000
    return ++calls === 1 ? { requeueAfterSeconds: 1 } : {}
  })
  await until(() => calls === 2)
  await stepping.stop()
})

describe('a name that is taken', () => {
  it('by somebody else is reported, never counted as ours, never touched, and tried again', async () => {
    await create(CONFIG_MAPS, configMap('foreign-config', { theirs: 'yes' }))
    await create(PODS, pod('foreign-pod'))
    const seen: number[] = []
    await scene.widget('foreign', ({ owned }) => {
      seen.push(owned['Pod.v1']!.length + owned['ConfigMap.v1']!.length)
      return {
        apply: [configMap('foreign-config', { theirs: 'no' }), pod('foreign-pod')],
        status: { phase: 'RUNNING' },
      }
    })
    expect(await scene.ended('foreign')).toMatchObject({
      result: 'error',
      message: expect.stringContaining('foreign-config'),
    })
    expect(await scene.condition('foreign')).toMatchObject({
      status: 'False',
      reason: 'NameTaken',
      message: ['ConfigMap runs/foreign-config', 'Pod runs/foreign-pod']
        .map(
          (taken) =>
            `${taken} exists, but has no controller: have the function give what it makes another name, or own the kind with strategy Apply and adopt: true, so that the object is taken over`,
        )
        .join('; '),
    })
    expect((await scene.get(WIDGETS, 'foreign'))?.status).toMatchObject({ phase: 'RUNNING' })
    expect(await scene.get(CONFIG_MAPS, 'foreign-config')).toMatchObject({ data: { theirs: 'yes' } })
    await until(async () => (await scene.reported('foreign')).length > 0)
    expect(await scene.reported('foreign')).toMatchObject([{ reason: 'NameTaken', type: 'Warning' }])

    await remove(CONFIG_MAPS, 'foreign-config')
    await remove(PODS, 'foreign-pod')
    await until(async () => (await scene.condition('foreign'))?.['status'] === 'True')
    expect((await scene.get(WIDGETS, 'foreign'))?.status).toMatchObject({ phase: 'RUNNING' })
    expect(seen.filter((count) => count > 0).every((count) => count === 2)).toBe(true)
  })

  it('by the object of an earlier incarnation waits until that is gone', async () => {
    const behaviour = () => ({ apply: [pod('reborn-pod')], status: { phase: 'RUNNING' } })
    const first = await scene.widget('reborn', behaviour)
    await scene.ended('reborn')
    await remove(WIDGETS, 'reborn')
    const from = scene.steps.length
    const second = await scene.widget('reborn', behaviour)
    expect(second.metadata.uid).not.toBe(first.metadata.uid)
    expect((await scene.ended('reborn', from)).message).toContain('belongs to an earlier Widget of this name')
    const old = await scene.get(PODS, 'reborn-pod')
    await remove(PODS, 'reborn-pod')
    await until(
      async () =>
        (await scene.get(WIDGETS, 'reborn'))?.status !== undefined &&
        (await scene.get(PODS, 'reborn-pod')) !== undefined,
    )
    const young = await scene.get(PODS, 'reborn-pod')
    expect(young?.metadata.uid).not.toBe(old?.metadata.uid)
    expect(young?.metadata.ownerReferences?.[0]?.uid).toBe(second.metadata.uid)
  })

  it('by our own object that EVENTS does not show yet is ours, and is created only once', async () => {
    const widget = await scene.widget('behind', () => ({}))
    await scene.ended('behind')
    const mine = await create(PODS, createdFor(widget, scene.name, pod('behind-pod')))
    await create(CONFIG_MAPS, createdFor(widget, scene.name, configMap('behind-config', { a: 'old' })))
    scene.behave('behind', () => ({ apply: [pod('behind-pod'), configMap('behind-config', { a: 'new' })] }))
    expect((await scene.run('behind')).result).toBe('success')
    expect((await scene.get(PODS, 'behind-pod'))?.metadata.uid).toBe(mine.metadata.uid)
    expect(await scene.get(CONFIG_MAPS, 'behind-config')).toMatchObject({ data: { a: 'new' } })
  })

  it('only in EVENTS, by an object that is gone, is created again', async () => {
    await scene.widget('ghost', () => ({ apply: [configMap('ghost-config', { a: '1' })] }))
    await scene.ended('ghost')
    await remove(CONFIG_MAPS, 'ghost-config')
    scene.behave('ghost', () => ({ apply: [configMap('ghost-config', { a: '2' })] }))
    expect((await scene.run('ghost')).result).toBe('success')
    expect(await scene.get(CONFIG_MAPS, 'ghost-config')).toMatchObject({ data: { a: '2' } })
  })

  it('by another object of ours since it was observed is not overwritten blindly', async () => {
    const widget = await scene.widget('swapped', () => ({ apply: [configMap('swapped-config', { a: '1' })] }))
    await scene.ended('swapped')
    await remove(CONFIG_MAPS, 'swapped-config')
    await create(CONFIG_MAPS, createdFor(widget, scene.name, configMap('swapped-config', { b: '1' })))
    scene.behave('swapped', () => ({ apply: [configMap('swapped-config', { a: '2' })] }))
    expect((await scene.run('swapped')).result).toBe('success')
    expect(await scene.get(CONFIG_MAPS, 'swapped-config')).toMatchObject({ data: { a: '2', b: '1' } })
  })
})

describe('a failure', () => {
  it('that is terminal is shown on the object and not retried until something changes', async () => {
    let calls = 0
    await scene.widget('terminal', () => {
      calls++
      throw new TerminalError('spec.schedule is no time', { reason: 'InvalidSchedule' })
    })
    expect((await scene.ended('terminal')).result).toBe('terminal')
    expect(await scene.condition('terminal')).toMatchObject({
      status: 'False',
      reason: 'InvalidSchedule',
      message: 'spec.schedule is no time',
    })
    expect(await scene.condition('terminal', 'Ready')).toMatchObject({ status: 'False', reason: 'InvalidSchedule' })
    await until(async () => (await scene.reported('terminal')).length === 1)
    expect(await scene.reported('terminal')).toMatchObject([
      { reason: 'InvalidSchedule', note: 'spec.schedule is no time' },
    ])
    expect(calls).toBe(1)
    expect((await scene.queue.depth('runs')).parked).toBeGreaterThan(0)

    expect(await scene.requestsDuring(() => scene.run('terminal'))).toEqual([])
    scene.behave('terminal', () => ({}))
    expect((await scene.run('terminal')).result).toBe('success')
    expect(await scene.condition('terminal')).toMatchObject({ status: 'True', reason: 'Reconciled', message: '' })
    expect(await scene.condition('terminal', 'Ready')).toBeUndefined()
  })

  it.each([
    ['undeclared', { apply: [{ apiVersion: 'v1', kind: 'Service', metadata: { name: 's' } }] }, 'Service runs/s'],
    ['elsewhere', { apply: [{ ...pod('p'), metadata: { name: 'p', namespace: 'kube-system' } }] }, 'Pod kube-system/p'],
    ['garbage', 'what?', 'the function returned no valid outcome'],
  ])('of the outcome itself is terminal and names it: %s', async (name, outcome, message) => {
    await scene.widget(name, () => outcome as Outcome)
    expect(await scene.ended(name)).toMatchObject({ result: 'terminal', message: expect.stringContaining(message) })
    expect(await scene.condition(name)).toMatchObject({
      reason: 'InvalidOutcome',
      message: expect.stringContaining(message),
    })
    expect(scene.writes(name)).toEqual([`status Widget ${name}`])
  })

  it('of a function that throws or hangs is one of that run only', async () => {
    await scene.widget('throws', ({ attempt }) => {
      if (attempt < 2) throw new Error('not yet')
      return { status: { attempt } }
    })
    const results = () => scene.stepsOf('throws').flatMap((step) => (step.step === 'finished' ? [step.result] : []))
    await until(() => results().length === 3)
    expect(results()).toEqual(['error', 'error', 'success'])
    expect(await scene.condition('throws')).toBeUndefined()
  })

  it('that does not pass is shown after five in a row, until a run goes through', async () => {
    let isBroken = true
    await scene.widget('broken', () => {
      if (isBroken) throw new TypeError('no such field')
      return {}
    })
    await until(async () => (await scene.condition('broken')) !== undefined)
    expect(await scene.condition('broken')).toMatchObject({
      status: 'False',
      reason: 'TypeError',
      message: 'no such field',
    })
    const failures = scene.stepsOf('broken').filter(({ step }) => step === 'finished')
    expect(failures.length).toBeGreaterThanOrEqual(4)
    await until(async () => (await scene.reported('broken')).length === 1)
    expect(await scene.reported('broken')).toMatchObject([{ type: 'Warning', reason: 'TypeError' }])
    isBroken = false
    await until(async () => (await scene.condition('broken'))?.['status'] === 'True')
  })

  it('with a time to try again is tried then', async () => {
    let calls = 0
    await scene.widget('later', () => {
      if (calls++ === 0) throw new RetryAfterError('the database starts', { afterSeconds: 0.3, reason: 'Starting' })
      return {}
    })
    await until(() => calls > 1)
    const armed = scene.stepsOf('later').find((step) => step.step === 'armed')
    const failed = scene.stepsOf('later').find((step) => step.step === 'finished')
    expect(armed).toMatchObject({ why: 'error' })
    expect(failed).toMatchObject({ result: 'error', message: 'the database starts' })
  })

  it('that is a conflict is decided again at once, but not for ever', async () => {
    let calls = 0
    await scene.widget('conflict', () => {
      calls++
      throw new ConflictError('the member list has moved')
    })
    expect((await scene.ended('conflict')).result).toBe('error')
    expect(calls).toBe(5)
    scene.behave('conflict', () => ({}))
  })

  it('of the API server’s making is shown with its words and retried with backoff', async () => {
    const broken = { ...pod('invalid-pod'), spec: { containers: [] } }
    await scene.widget('invalid', () => ({
      apply: [broken, configMap('invalid-config')],
      status: { phase: 'RUNNING' },
    }))
    expect((await scene.ended('invalid')).result).toBe('error')
    expect(await scene.condition('invalid')).toMatchObject({
      reason: 'Invalid',
      message: expect.stringContaining('spec.containers: Required value'),
    })
    expect((await scene.get(WIDGETS, 'invalid'))?.status).toMatchObject({ phase: 'RUNNING' })
    expect(await scene.get(CONFIG_MAPS, 'invalid-config')).toBeDefined()
    scene.behave('invalid', () => ({ apply: [pod('invalid-pod')], status: { phase: 'RUNNING' } }))
    await until(async () => (await scene.condition('invalid'))?.['status'] === 'True')
  })

  it('to settle ends in backoff', async () => {
    let toggle = 0
    await scene.widget('restless', () => ({ status: { toggle: toggle++ } }))
    expect(await scene.ended('restless')).toMatchObject({
      result: 'error',
      message: expect.stringContaining('times in a row'),
    })
    scene.behave('restless', () => ({}))
  })

  it('because of a change to what was given is told to the author', async () => {
    await scene.widget('mutating', ({ object }) => {
      Object.assign(object!.metadata, { labels: {} })
      return {}
    })
    expect(await scene.ended('mutating')).toMatchObject({
      result: 'error',
      message: expect.stringMatching(/read only|extensible/),
    })
    scene.behave('mutating', () => ({}))
  })
})

describe('an Event', () => {
  it('is written once for the same reason and message', async () => {
    const started = { type: 'Normal', reason: 'Started', message: 'it runs' } as const
    await scene.widget('event', () => ({ events: [started] }))
    await scene.ended('event')
    await scene.run('event')
    await until(async () => (await scene.reported('event')).length > 0)
    expect(await scene.reported('event')).toMatchObject([
      { type: 'Normal', reason: 'Started', note: 'it runs', reportingController: 'fairlead.dev/runs' },
    ])
  })
})
