import { describe, expect, it } from 'vitest'
import { At, at } from '#functions/at'
import { manifest, Pod } from '#sdk'
import { outcomeOf, simulate } from '#testing'
import { atObject, BOOK, DUE, decide, podObject, podStatus } from './given.ts'

const LATE = '2030-01-01T00:00:00Z'
const simulated = (spec: object = {}, now: string = DUE) =>
  simulate(at, { objects: [atObject({ spec: { ...BOOK, ...spec } })], now })

/** The defects of the three originals (cnat with client-go, kubebuilder and operator-sdk). Ours has none of them. */
describe('an At, unlike the original,', () => {
  it('1. says that its schedule is none, and does not try again and again', async () => {
    const world = simulated({ schedule: 'tomorrow' })
    await world.runUntilIdle()
    expect(world.object).toMatchObject({
      status: {
        conditions: ['Reconciled', 'Ready'].map((type) => ({ type, status: 'False', reason: 'InvalidSchedule' })),
      },
    })
    expect(world.events).toMatchObject([{ type: 'Warning', reason: 'InvalidSchedule' }])
    expect(world.timer).toBe(undefined)
  })

  it('2. runs commands with quotes, several spaces, pipes and variables', async () => {
    const { apply } = await decide({ spec: { ...BOOK, command: `echo 'a  b' | grep "$X" && true`, shell: true } })
    expect(apply).toMatchObject([
      { spec: { containers: [{ command: ['/bin/sh', '-c', `echo 'a  b' | grep "$X" && true`, 'sh'] }] } },
    ])
    await expect(decide({ spec: { ...BOOK, command: '' } })).rejects.toMatchObject({ reason: 'InvalidCommand' })
  })

  it('3. is not RUNNING for ever when its command fails', async () => {
    const world = simulated()
    for (let attempt = 0; attempt <= 6; attempt++) {
      await world.runUntilIdle()
      world.patch(Pod, { status: podStatus('Failed', { exitCode: 1 }) })
      await world.runUntilIdle()
      await world.advance(400)
    }
    expect(world.object).toMatchObject({ status: { phase: 'FAILED', failures: 7 } })
  })

  it('4. tells failure from success, with exit code, reason, times and pod', async () => {
    const failed = { phase: 'Failed', exitCode: 3, created: DUE, finishedAt: '2019-04-12T10:12:09Z' }
    const { status } = await decide({ spec: { ...BOOK, backoffLimit: 0 } }, [failed])
    expect(status).toMatchObject({
      phase: 'FAILED',
      exitCode: 3,
      reason: 'Error',
      podName: 'example-at-pod',
      startTime: DUE,
      completionTime: '2019-04-12T10:12:09Z',
    })
  })

  it('5. never counts a foreign pod of its pod’s name, says so, and runs when the name is free', async () => {
    const foreign = { ...podObject({ phase: 'Succeeded' }), metadata: { name: 'example-at-pod', namespace: 'default' } }
    const world = simulate(at, { objects: [atObject({}), foreign], now: DUE })
    await world.runUntilIdle()
    expect(world.object).toMatchObject({ status: { conditions: [{ status: 'False', reason: 'NameTaken' }] } })
    world.delete(Pod)
    await world.advance(60)
    expect(world.list(Pod)).toMatchObject([{ spec: { restartPolicy: 'Never' } }])
  })

  it('6. runs again when it is deleted and created at once, while its old pod is still there', async () => {
    const old = { phase: 'Succeeded', ownerUid: 'old' }
    expect(await decide({ uid: 'new' }, [old])).toMatchObject({ apply: [{ kind: 'Pod' }] })
  })

  it('7. replaces a pod that is deleted under it, at once', async () => {
    const world = simulated()
    await world.runUntilIdle()
    world.delete(Pod)
    await world.runUntilIdle()
    expect(world.list(Pod)).toHaveLength(1)
  })

  it('8. moves its time when it is edited while pending, to later as well as to earlier', async () => {
    const world = simulated({ schedule: '2019-04-12T11:00:00Z' })
    await world.runUntilIdle()
    for (const schedule of ['2019-04-12T12:00:00Z', '2019-04-12T10:30:00Z']) {
      world.edit({ spec: { schedule } })
      await world.runUntilIdle()
      expect(world.timer).toEqual(new Date(schedule))
    }
  })

  it('9. does not run again when it is edited after its end; while it runs, an edit counts for a retry', async () => {
    expect(await decide({ phase: 'DONE', spec: { ...BOOK, command: 'other' } }, [], LATE)).toEqual({})
    const edited = { phase: 'RUNNING', spec: { ...BOOK, command: 'other' } }
    const { apply } = await decide(edited, [{ phase: 'Failed', exitCode: 1, finishedAt: DUE }], LATE)
    expect(apply).toMatchObject([{}, { spec: { containers: [{ command: ['other'] }] } }])
  })

  it('10. runs whatever its name, up to the limit of the API', async () => {
    const { apply } = await decide({ name: 'a'.repeat(253) })
    const { name, labels } = apply![0]!.metadata
    expect([name.length, labels?.['app']?.length]).toEqual([154, 63])
  })

  it('11. says why its pod does not start, and ends at a deadline', async () => {
    const waiting = { waiting: 'ErrImagePull', created: DUE }
    const spec = { ...BOOK, activeDeadlineSeconds: 60 }
    expect((await decide({ spec }, [waiting])).status).toMatchObject({ reason: 'ImagePullBackOff' })
    expect((await decide({ spec }, [waiting], LATE)).status).toMatchObject({ reason: 'DeadlineExceeded' })
  })

  it('12. does not run late if it must not', async () => {
    const { status } = await decide({ spec: { ...BOOK, startingDeadlineSeconds: 60 } }, [], LATE)
    expect(status).toMatchObject({ phase: 'FAILED', reason: 'StartingDeadlineExceeded' })
  })

  it('13. goes by the clock of the dispatcher that it is given, never by its own', async () => {
    const schedule = '2999-01-01T00:00:00Z'
    expect(await decide({ spec: { ...BOOK, schedule } }, [], schedule)).toHaveProperty('apply')
  })

  it('14. asks for the rights that it needs: to pods', () => {
    expect(manifest(at).spec.owns).toMatchObject([{ group: '', resource: 'pods' }])
  })

  it('15. decides the same after earlier failures', async () => {
    const decideAt = (attempt: number) => outcomeOf(at, { object: atObject({}), now: DUE, attempt })
    expect(await decideAt(9)).toEqual(await decideAt(0))
  })

  it('16. has tests of what it does: this one sees its whole life', async () => {
    const world = simulated({ schedule: '2019-04-12T10:13:00Z' })
    const phases: unknown[] = []
    const look = () => phases.push(At.parse(world.object!).status.phase)
    await world.runUntilIdle()
    look()
    await world.advance(60)
    look()
    world.patch(Pod, { status: podStatus('Succeeded', { exitCode: 0 }) })
    await world.runUntilIdle()
    look()
    expect(phases).toEqual(['PENDING', 'RUNNING', 'DONE'])
  })
})
