import { describe, expect, it } from 'vitest'
import { at } from '#functions/at'
import { Pod } from '#sdk'
import { lawsOf, type Simulation, simulate } from '#testing'
import { atObject, podStatus } from './given.ts'
import { end, scenarios } from './scenarios.ts'

const NOW = '2030-01-01T00:00:00.000Z'
const SOON = '2030-01-01T00:01:00Z'

const simulated = (spec: object) =>
  simulate(at, { objects: [atObject({ spec: { schedule: NOW, command: 'backup', ...spec } })], now: NOW })

const statusOf = ({ object }: Simulation) => (object?.status ?? {}) as Record<string, unknown>
const podNames = (world: Simulation) => world.list(Pod).map(({ metadata }) => metadata.name)

describe('an At that fails', () => {
  it('is tried again after 10 s, 20 s, 40 s … in a new pod, and FAILED when the limit is reached', async () => {
    const world = simulated({ backoffLimit: 3 })
    for (const delay of [10, 20, 40]) {
      await world.runUntilIdle()
      end(world, 3)
      await world.runUntilIdle()
      const { length } = podNames(world)
      await world.advance(delay - 0.001)
      expect(podNames(world)).toHaveLength(length)
      await world.advance(0.001)
      expect(podNames(world)).toHaveLength(length + 1)
    }
    end(world, 3)
    await world.runUntilIdle()
    expect(podNames(world)).toEqual(['example-at-pod', 'example-at-pod-1', 'example-at-pod-2', 'example-at-pod-3'])
    expect(statusOf(world)).toMatchObject({
      phase: 'FAILED',
      podName: 'example-at-pod-3',
      failures: 4,
      exitCode: 3,
      reason: 'Error',
      startTime: '2030-01-01T00:00:00Z',
      completionTime: '2030-01-01T00:01:10Z',
      message: 'pod example-at-pod-3 ended with exit code 3 (Error)',
      conditions: [{ type: 'Failed', status: 'True', reason: 'BackoffLimitExceeded' }],
    })
    expect(world.events).toMatchObject([{ type: 'Warning', reason: 'BackoffLimitExceeded' }])
    expect(world.timer).toBe(undefined)
  })

  it('is not tried again with a limit of 0', async () => {
    const world = simulated({ backoffLimit: 0 })
    await world.runUntilIdle()
    end(world, 1)
    await world.runUntilIdle()
    expect(statusOf(world)).toMatchObject({ phase: 'FAILED', failures: 1 })
    expect(podNames(world)).toHaveLength(1)
  })

  it('waits 6 min at most between two tries', async () => {
    const world = simulated({ backoffLimit: 20 })
    for (let tries = 0; tries < 10; tries++) {
      await world.runUntilIdle()
      end(world, 1)
      await world.runUntilIdle()
      await world.advance(360)
    }
    expect(podNames(world)).toHaveLength(11)
  })

  it('counts an attempt whose pod somebody has deleted since', async () => {
    const world = simulated({ backoffLimit: 1 })
    await world.runUntilIdle()
    end(world, 1)
    await world.runUntilIdle()
    world.delete(Pod)
    await world.runUntilIdle()
    expect(podNames(world)).toEqual(['example-at-pod-1'])
    end(world, 1)
    await world.runUntilIdle()
    expect(statusOf(world)).toMatchObject({ phase: 'FAILED', failures: 2 })
  })

  it('is DONE when a later attempt succeeds', async () => {
    const world = simulated({})
    await world.runUntilIdle()
    end(world, 1)
    await world.runUntilIdle()
    await world.advance(10)
    end(world, 0)
    await world.runUntilIdle()
    expect(statusOf(world)).toMatchObject({ phase: 'DONE', exitCode: 0, failures: 1, podName: 'example-at-pod-1' })
  })

  it('says meanwhile why its pod does not start', async () => {
    const world = simulated({})
    await world.runUntilIdle()
    for (const waiting of ['ErrImagePull', 'ImagePullBackOff']) {
      world.patch(Pod, { status: podStatus('Pending', { waiting }) })
      await world.runUntilIdle()
      expect(statusOf(world)).toMatchObject({ phase: 'RUNNING', reason: 'ImagePullBackOff' })
    }
    world.patch(Pod, { status: podStatus('Pending', { waiting: 'ContainerCreating' }) })
    await world.runUntilIdle()
    expect(statusOf(world)).not.toHaveProperty('reason')
  })
})

describe('activeDeadlineSeconds', () => {
  it('is the pod’s, less for each retry, and ends it all as FAILED', async () => {
    const world = simulated({ activeDeadlineSeconds: 60 })
    await world.runUntilIdle()
    world.pass(20)
    end(world, 1)
    await world.runUntilIdle()
    await world.advance(10)
    expect(world.list(Pod).map(({ spec }) => spec?.activeDeadlineSeconds)).toEqual([60, 30])
    world.pass(30)
    end(world, 137, 'DeadlineExceeded')
    await world.runUntilIdle()
    expect(statusOf(world)).toMatchObject({ phase: 'FAILED', reason: 'DeadlineExceeded', failures: 2 })
  })

  it('holds too when no kubelet ends the pod, which is then taken away', async () => {
    const template = { spec: { terminationGracePeriodSeconds: 0 } }
    const world = simulated({ activeDeadlineSeconds: 60, template })
    await world.runUntilIdle()
    await world.advance(89)
    expect(statusOf(world)).toMatchObject({ phase: 'RUNNING' })
    await world.advance(1)
    expect(statusOf(world)).toMatchObject({
      phase: 'FAILED',
      reason: 'DeadlineExceeded',
      completionTime: '2030-01-01T00:01:30Z',
    })
    expect(podNames(world)).toEqual([])
  })

  it('leaves no time for a retry after it', async () => {
    const world = simulated({ activeDeadlineSeconds: 5 })
    await world.runUntilIdle()
    end(world, 1)
    await world.runUntilIdle()
    await world.advance(10)
    expect(statusOf(world)).toMatchObject({ phase: 'FAILED', reason: 'DeadlineExceeded' })
    expect(podNames(world)).toHaveLength(1)
  })
})

describe('startingDeadlineSeconds', () => {
  it('lets it start that late, and no later', async () => {
    const world = simulated({ startingDeadlineSeconds: 60 })
    const later = world.copy()
    world.pass(60)
    await world.runUntilIdle()
    expect(statusOf(world)).toMatchObject({ phase: 'RUNNING' })
    later.pass(61)
    await later.runUntilIdle()
    expect(statusOf(later)).toMatchObject({
      phase: 'FAILED',
      reason: 'StartingDeadlineExceeded',
      conditions: [{ type: 'Failed' }],
    })
  })

  it('says nothing of one that has started', async () => {
    const world = simulated({ startingDeadlineSeconds: 60 })
    await world.runUntilIdle()
    world.delete(Pod)
    world.pass(3600)
    await world.runUntilIdle()
    expect(podNames(world)).toEqual(['example-at-pod'])
  })
})

describe('ttlSecondsAfterFinished', () => {
  it.each([0, 3])(
    'deletes the At, and its pods with it, that long after it has ended with exit code %i',
    async (code) => {
      const world = simulated({ ttlSecondsAfterFinished: 100, backoffLimit: 0 })
      await world.runUntilIdle()
      end(world, code)
      await world.runUntilIdle()
      await world.advance(99)
      expect([world.object?.metadata.name, podNames(world)]).toEqual(['example-at', ['example-at-pod']])
      await world.advance(1)
      expect([world.object, podNames(world), world.timer]).toEqual([undefined, [], undefined])
    },
  )

  it('of 0 deletes the At in the run that sees its end, after its status', async () => {
    const world = simulated({ ttlSecondsAfterFinished: 0 })
    await world.runUntilIdle()
    end(world, 0)
    await world.runUntilIdle()
    expect(world.object).toBe(undefined)
    expect(world.writes.map(({ verb, object }) => `${verb} ${object.kind}`).slice(-2)).toEqual([
      'status At',
      'delete At',
    ])
  })

  it('counts for an At that has lost its pods, and for one that gets it after its end', async () => {
    const world = simulated({})
    await world.runUntilIdle()
    end(world, 0)
    await world.runUntilIdle()
    world.delete(Pod)
    world.pass(100)
    world.edit({ spec: { ttlSecondsAfterFinished: 60 } })
    await world.runUntilIdle()
    expect(world.object).toBe(undefined)
  })
})

describe('suspend', () => {
  it('holds the start back, without a timer, until it is taken back', async () => {
    const world = simulated({ schedule: SOON, suspend: true })
    await world.runUntilIdle()
    expect(world.timer).toBe(undefined)
    await world.advance(3600)
    await world.runUntilIdle()
    expect(statusOf(world)).toMatchObject({ phase: 'PENDING', conditions: [{ type: 'Suspended', status: 'True' }] })
    world.edit({ spec: { suspend: false } })
    await world.runUntilIdle()
    expect(podNames(world)).toHaveLength(1)
    expect(statusOf(world)).toMatchObject({ phase: 'RUNNING', conditions: [{ type: 'Suspended', status: 'False' }] })
  })

  it('does not stop one that has started', async () => {
    const world = simulated({})
    await world.runUntilIdle()
    world.edit({ spec: { suspend: true } })
    await world.runUntilIdle()
    expect(podNames(world)).toHaveLength(1)
  })
})

describe('API requests of a life', () => {
  const writes = (world: Simulation) => world.writes.map(({ verb }) => verb)

  it('are three when it is due at once', async () => {
    const world = simulated({})
    await world.runUntilIdle()
    world.patch(Pod, { status: podStatus('Running') })
    await world.runUntilIdle()
    end(world, 0)
    await world.runUntilIdle()
    expect(writes(world)).toEqual(['create', 'status', 'status'])
  })

  it('are four when it waits for its time', async () => {
    const world = simulated({ schedule: SOON })
    await world.runUntilIdle()
    await world.advance(60)
    end(world, 0)
    await world.runUntilIdle()
    expect(writes(world)).toEqual(['status', 'create', 'status', 'status'])
  })
})

describe('whatever happens to an At', () => {
  describe.each(Object.entries(scenarios))('%s', (_, one) => {
    it.each(lawsOf(at, one))('%s', (_, holds) => holds())
  })
})
