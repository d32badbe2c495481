import { describe, expect, it } from 'vitest'
import type { Outcome, TerminalError } from '#contracts'
import { BOOK, DUE, decide, type GivenAt, type GivenPod, THE_POD } from './given.ts'

const EARLY = '2019-04-12T10:11:59.999Z'
const LATE = '2026-01-01T00:00:00Z'

const WAIT: Outcome = { status: { phase: 'PENDING', scheduledTime: DUE }, requeueAt: DUE }
const START: Outcome = { apply: [THE_POD] as never }
const RUNNING: Outcome = { status: { phase: 'RUNNING', podName: 'example-at-pod' } }
const DONE: Outcome = {
  status: { phase: 'DONE', podName: 'example-at-pod', completionTime: LATE },
  conditions: [{ type: 'Complete', status: 'True', reason: 'Completed' }],
}

describe('At decides', () => {
  const rows: [string, GivenAt, GivenPod[], string, Outcome][] = [
    ['a new At before its time: PENDING at once, and a timer', {}, [], EARLY, WAIT],
    ['a pending At before its time: waits on', { phase: 'PENDING' }, [], EARLY, WAIT],
    ['a new At at its time: starts, without a detour', {}, [], DUE, START],
    ['a pending At at its time: starts', { phase: 'PENDING' }, [], DUE, START],
    ['however late: starts', { phase: 'PENDING' }, [], LATE, START],
    ['its pod is there, though its status was not written: RUNNING', { phase: 'PENDING' }, [{}], DUE, RUNNING],
    ['its pod has even ended before: DONE', {}, [{ phase: 'Succeeded' }], LATE, DONE],
    ['its pod is there, and the time was then moved: RUNNING', { phase: 'PENDING' }, [{}], EARLY, RUNNING],
    ['RUNNING with its pod: waits for it', { phase: 'RUNNING' }, [{ phase: 'Running' }], LATE, RUNNING],
    ['RUNNING, the pod succeeded: DONE', { phase: 'RUNNING' }, [{ phase: 'Succeeded' }], LATE, DONE],
    ['RUNNING, the pod was deleted: runs again', { phase: 'RUNNING' }, [], LATE, START],
    ['RUNNING, the pod is going: waits until it is gone', { phase: 'RUNNING' }, [{ deleted: true }], LATE, RUNNING],
    [
      'RUNNING, the pod was stopped by its deletion: will run again',
      { phase: 'RUNNING' },
      [{ phase: 'Failed', deleted: true }],
      LATE,
      RUNNING,
    ],
    [
      'RUNNING, the pod succeeded while it was being deleted: DONE',
      { phase: 'RUNNING' },
      [{ phase: 'Succeeded', deleted: true }],
      LATE,
      DONE,
    ],
    ['RUNNING, whatever the schedule is edited to', { phase: 'RUNNING', spec: {} }, [{}], LATE, RUNNING],
    ['DONE stays DONE', { phase: 'DONE' }, [], LATE, {}],
    ['DONE stays DONE after an edit', { phase: 'DONE', spec: { schedule: 'never' } }, [{}], EARLY, {}],
    ['FAILED stays FAILED after an edit', { phase: 'FAILED', spec: { ...BOOK, backoffLimit: 9 } }, [], LATE, {}],
    ['a pod of an earlier At of this name is not ours', {}, [{ phase: 'Succeeded', ownerUid: 'old' }], DUE, START],
    [
      'nor when RUNNING: the new pod is asked for until its name is free',
      { phase: 'RUNNING' },
      [{ phase: 'Succeeded', ownerUid: 'old' }],
      DUE,
      START,
    ],
  ]
  it.each(rows)('%s', async (_, given, pods, now, expected) => {
    expect(await decide(given, pods, now)).toEqual(expected)
  })
})

describe('At, over every combination of phase, pods, time and spec', () => {
  const podPhases = ['Pending', 'Running', 'Succeeded', 'Failed', 'Unknown']
  const strangers: GivenPod[] = podPhases.map((phase) => ({ phase, ownerUid: 'old' }))
  const podSets: GivenPod[][] = [
    [],
    ...podPhases.flatMap((phase) => [
      [{ phase }],
      [{ phase, deleted: true }],
      [{ phase }, { name: 'example-at-pod-1', phase: 'Pending' }],
    ]),
  ]
  const schedule = '2019-04-12T10:12:00Z'
  const command = 'echo YAY'
  const specs = [
    { schedule, command },
    { schedule: 'tomorrow', command },
    { command },
    { schedule, command: '' },
    { schedule },
    { schedule, command, backoffLimit: 0 },
    {},
  ]

  /** Returns the decision as a word: the next phase, the started object, or the reason of the rejection. */
  async function inAWord(given: GivenAt, pods: GivenPod[], now: string): Promise<string> {
    try {
      const { apply, status, requeueAt } = await decide(given, pods, now)
      const started = apply
        ?.map(({ metadata }) => metadata.name)
        .filter((name) => !pods.some((pod) => pod.name === name))
      return [(status?.['phase'] as string) ?? 'as it is', ...(started ?? []), requeueAt ?? ''].join(' ').trim()
    } catch (error) {
      return (error as TerminalError).reason
    }
  }

  function expected({ phase, spec = {} }: GivenAt, pods: GivenPod[], now: string): string {
    const read = spec as { schedule?: string; command?: string; backoffLimit?: number }
    if (phase === 'DONE' || phase === 'FAILED') return 'as it is'
    if (pods.some((pod) => pod.phase === 'Succeeded')) return 'DONE'
    const hasFailed = pods.some((pod) => pod.phase === 'Failed' && !pod.deleted)
    if (hasFailed && read.backoffLimit === 0) return 'FAILED'
    if (pods.some((pod) => pod.phase !== 'Failed' || pod.deleted)) return 'RUNNING'
    if (read.command !== command) return 'InvalidCommand'
    if (hasFailed) return 'as it is example-at-pod example-at-pod-1'
    if (phase === 'RUNNING') return 'as it is example-at-pod'
    if (read.schedule !== schedule) return 'InvalidSchedule'
    return now === EARLY ? `PENDING ${DUE}` : 'as it is example-at-pod'
  }

  it.each([undefined, 'PENDING', 'RUNNING', 'DONE', 'FAILED'])(
    'from phase %s: does as the model, whatever pods of others are there',
    async (phase) => {
      for (const pods of podSets)
        for (const now of [EARLY, DUE, LATE])
          for (const spec of specs) {
            const given = { phase, spec }
            const alone = await inAWord(given, pods, now)
            const inCompany = await inAWord(given, [...strangers, ...pods], now)
            const model = expected(given, pods, now)
            expect({ given, pods, now, alone, inCompany }).toEqual({ given, pods, now, alone: model, inCompany: model })
          }
    },
  )
})
