import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type KubeObject, type RunContext, type RunInput, TerminalError } from '#contracts'
import { keyOf, openEventStore } from '#events'
import { resourcePath } from '#kube'
import { triggerCause } from '#queue'
import { ConfigMap, Pod, type Reconciler, reconciler, resource, toInvoke } from '#sdk'
import { CONFIG_MAPS, configMap, PODS, pod, silent, until, useFixture, WIDGETS } from './fixture.ts'
import { createdFor, ownedByWidget } from './objects.ts'

const fixture = useFixture()
const scene = fixture.useScene('runs')
const owner = (name: string) => ({ resource: 'widgets', name })

/** Creates an object as another client. */
const create = (ref: typeof PODS | typeof CONFIG_MAPS, object: object): Promise<KubeObject> =>
  fixture.kube.create(resourcePath(ref, scene.name), object)

const remove = (ref: typeof PODS | typeof CONFIG_MAPS | typeof WIDGETS, name: string) =>
  fixture.kube.delete(resourcePath(ref, scene.name, name), { gracePeriodSeconds: 0 })

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

  it('is followed by another call for a trigger, although nothing has changed', async () => {
    let calls = 0
    const of = { reconciler: scene.name, key: keyOf(scene.name, 'triggered') }
    const isDirty = async () => (await scene.queue.find(of)).some((entry) => entry.state === 'running' && entry.dirty)
    await scene.widget('triggered', async () => {
      if (++calls > 1) return {}
      await scene.enqueue('triggered', { cause: triggerCause('paid') })
      // A run that takes the token itself is not marked.
      await until(isDirty, { what: 'the token has reached the run', timeoutMs: 2000 }).catch(() => {})
      return {}
    })
    await until(() => calls === 2, { what: 'the function is called again' })
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

  it('ends when the object turns out to be gone at its status write', async () => {
    await scene.widget('vanished', async ({ object }) => {
      if (object?.status === undefined) await remove(WIDGETS, 'vanished')
      return { status: { phase: 'DONE' } }
    })
    expect((await scene.ended('vanished')).result).toBe('success')
    expect(await scene.get(WIDGETS, 'vanished')).toBeUndefined()
  })
})

it('runs again in time when its clock was set back during the run that asked for it', async () => {
  let stepped = 0
  const now = () => Date.now() + stepped
  await using stepping = await fixture.scene('stepping', { queue: { now }, dispatcher: { now: () => new Date(now()) } })
  let calls = 0
  await stepping.widget('again', () => {
    stepped = -3_600_000
    return ++calls === 1 ? { requeueAfterSeconds: 1 } : {}
  })
  await until(() => calls === 2)
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

    expect(new Set(seen)).toEqual(new Set([0]))
    await remove(CONFIG_MAPS, 'foreign-config')
    await remove(PODS, 'foreign-pod')
    await until(async () => (await scene.condition('foreign'))?.['status'] === 'True')
    expect((await scene.get(WIDGETS, 'foreign'))?.status).toMatchObject({ phase: 'RUNNING' })
    expect(seen.at(-1)).toBe(2)
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

  it('of a function that had said Ready makes that Unknown from the second in a row on, by one write that causes no run', async () => {
    await scene.widget('doubtful', () => ({ conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }] }))
    await scene.ended('doubtful')
    const began = scene.stepsOf('doubtful').length
    let failures = 0
    const fourth = Promise.withResolvers<void>()
    scene.behave('doubtful', async () => {
      if (++failures === 4) await fourth.promise
      throw new TypeError(`no such field, for the ${failures}th time`)
    })
    await scene.run('doubtful')
    expect(await scene.condition('doubtful', 'Ready')).toMatchObject({ status: 'True' })
    await until(() => failures === 4)
    expect(await scene.condition('doubtful', 'Ready')).toMatchObject({
      status: 'Unknown',
      reason: 'TypeError',
      message: 'the function fails: no such field, for the 2th time',
    })
    const steps = scene.stepsOf('doubtful').slice(began)
    expect(steps.filter(({ step }) => step === 'written')).toHaveLength(1)
    const started = steps.flatMap((step) => (step.step === 'started' ? [step] : []))
    expect(started.slice(1).map(({ fired, causes = [] }) => [fired, causes])).toEqual(
      started.slice(1).map(() => [true, []]),
    )
    scene.behave('doubtful', () => ({}))
    fourth.resolve()
    await until(async () => (await scene.condition('doubtful', 'Ready'))?.['status'] === 'True')
  })
})

describe('versions of a function', () => {
  const Widget = resource({
    group: WIDGETS.group,
    version: WIDGETS.version,
    kind: WIDGETS.kind,
    plural: WIDGETS.resource,
    spec: z.object({}),
    status: z.object({}),
  })

  const scene = fixture.useScene('versions', { spec: { finalize: true } })

  /** As a process that has this version calls it; the Reconciler is that of the newer one. */
  const versionOf = (one: Reconciler) => (input: RunInput, context: RunContext) => toInvoke(one)(input, context)

  const older = versionOf(
    reconciler({ name: 'versions', for: Widget, owns: [Pod], reconcile: () => ({ apply: [pod('any')] }) }),
  )
  const newer = (name: string) =>
    versionOf(
      reconciler({
        name: 'versions',
        for: Widget,
        owns: [Pod, ConfigMap],
        reconcile: () => ({ apply: [pod(name), configMap(name)] }),
        finalize: () => undefined,
      }),
    )

  it('what a newer version of a function has made is not deleted by an older one that knows no such kind', async () => {
    await scene.widget('grown', newer('grown'))
    await scene.ended('grown')
    scene.behave('grown', older)
    expect(await scene.run('grown')).toMatchObject({
      result: 'error',
      message: expect.stringContaining('ConfigMap.v1'),
    })
    expect(await scene.get(CONFIG_MAPS, 'grown')).toBeDefined()
    expect(await scene.get(PODS, 'grown')).toBeDefined()
    scene.behave('grown', newer('grown'))
    expect((await scene.run('grown')).result).toBe('success')
  })

  it('an object that waits for its clean-up is not let go by an older version of its function that has none', async () => {
    await scene.widget('going', newer('going'))
    await scene.ended('going')
    scene.behave('going', older)
    await fixture.kube.delete(resourcePath(WIDGETS, scene.name, 'going'))
    await scene.see(WIDGETS, 'going')
    expect((await scene.run('going')).result).toBe('error')
    expect(await scene.get(WIDGETS, 'going')).toBeDefined()
    scene.behave('going', newer('going'))
    await scene.run('going')
    expect(await scene.get(WIDGETS, 'going')).toBeUndefined()
  })
})

const sizeOf = ({ object }: Pick<RunInput, 'object'>) => (object as KubeObject & { spec: { size?: number } }).spec.size

it('a run of a timer does not decide on what EVENTS has overtaken, though the token of that change waits in a full low lane', async () => {
  const { stream } = fixture.events
  // The bridge, in another process.
  const bridge = await openEventStore(fixture.js, {
    prefix: stream.slice(0, -'_EVENTS'.length),
    cluster: 'test',
    log: silent,
  })
  const name = 'views-overtaken'
  await using found = await fixture.scene(name, { spec: { concurrency: 4 } })
  const others = Array.from({ length: 12 }, (_, index) => `other-${index}`)
  for (const other of others) {
    await found.widget(other, () => ({}))
    await found.ended(other)
  }
  const end = Promise.withResolvers<void>()
  let held = 0
  for (const other of others)
    found.behave(other, async () => {
      held++
      await end.promise
      return {}
    })
  for (const other of others) await found.queue.enqueue(name, keyOf(name, other), { lane: 'low' })
  await until(() => held === 3)
  const sizes: (number | undefined)[] = []
  await found.widget('w', (input) => {
    sizes.push(sizeOf(input))
    return { requeueAfterSeconds: 2 }
  })
  const path = resourcePath(WIDGETS, name, 'w')
  const waiting = async () => (await found.queue.depth(name)).waiting === 1
  let size = 0
  const isOvertaken = async () => {
    const runs = sizes.length
    if (!(await waiting())) return false
    await bridge.put(WIDGETS, 'modified', await fixture.kube.patch(path, { spec: { size: ++size } }, 'merge'))
    await found.queue.enqueue(name, keyOf(name, 'w'), { lane: 'low' })
    return sizes.length === runs && (await waiting())
  }
  await until(isOvertaken)
  const runs = sizes.length
  await until(() => sizes.length > runs)
  expect(sizes[runs]).toBe(size)
  // The token is still there.
  expect((await found.queue.depth(name)).queued).toBe(others.length - 3 + 1)
  end.resolve()
})
