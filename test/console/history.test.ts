import { describe, expect, it } from 'vitest'
import type { KubeObject, RunRecord } from '#contracts'
import type { StoredRun } from '#events'
import { recordOf } from '../../cli/process/run-record.ts'
import { history, transitionsOf } from '../../packages/console/pages/history.ts'
import { situation } from '../inspect/situations.ts'
import { endedRun, input, round, website } from '../process/history/runs.ts'

type Said = [type: string, status: string, second: number]
const at = (second: number): string => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString().replace('.000', '')
const conditions = (said: Said[]) =>
  said.map(([type, status, second]) => ({ type, status, lastTransitionTime: at(second), reason: `At${second}` }))
const siteWith = (version: string, ...said: Said[]): KubeObject =>
  website(version, { status: { conditions: conditions(said) } })

/** A run of the second `second` that saw and wrote these conditions. */
function run(sequence: number, second: number, saw: Said[], ...wrote: Said[][]): StoredRun {
  const before = siteWith(`${second}`, ...saw)
  const writes = wrote.map((said) => ({
    verb: 'status' as const,
    object: before,
    before,
    after: before,
    patch: { conditions: conditions(said) },
  }))
  const startedAt = new Date(Date.parse(at(second)) + 400)
  const record: RunRecord = recordOf(
    endedRun({ startedAt, rounds: [round({ input: input({ object: before }), writes })] }, `run-${sequence}`),
    { process: 'vm-1', cpuMs: undefined },
  )
  return { sequence, bytes: 1, record }
}

const told = (...given: Parameters<typeof transitionsOf>) =>
  transitionsOf(...given).map(({ type, before, status, lastTransitionTime, run: by }) => [
    type,
    before,
    status,
    lastTransitionTime,
    by,
  ])

describe('the transitions of an object', () => {
  it('are those that recorded runs wrote, with the status before and the run, and those that the object shows', () => {
    const first = run(3, 10, [], [['Ready', 'False', 10]])
    const second = run(
      5,
      20,
      [['Ready', 'False', 10]],
      [
        ['Ready', 'True', 20],
        ['Stalled', 'False', 20],
      ],
    )
    const now = siteWith('9', ['Ready', 'Unknown', 30], ['Stalled', 'False', 20])
    expect(told(now, [second, first])).toEqual([
      ['Ready', undefined, 'False', at(10), 3],
      ['Ready', 'False', 'True', at(20), 5],
      ['Stalled', undefined, 'False', at(20), 5],
      ['Ready', undefined, 'Unknown', at(30), undefined],
    ])
  })

  it('are not those that a run only kept, and are two where a run wrote two', () => {
    const kept = run(
      4,
      50,
      [['Ready', 'True', 10]],
      [
        ['Ready', 'True', 10],
        ['Sized', 'False', 50],
      ],
      [
        ['Ready', 'True', 10],
        ['Sized', 'True', 50],
      ],
    )
    expect(told(undefined, [kept])).toEqual([
      ['Ready', undefined, 'True', at(10), undefined],
      ['Sized', undefined, 'False', at(50), 4],
      ['Sized', 'False', 'True', at(50), 4],
    ])
  })

  it('are not those of a status that was refused, or that is too large for its record', () => {
    const refused = run(6, 10, [], [['Ready', 'True', 10]])
    for (const { writes } of refused.record.laps) for (const write of writes) write.error = 'Conflict'
    const large = run(7, 20, [], [['Ready', 'True', 20]])
    for (const { writes } of large.record.laps) for (const write of writes) delete write.patch
    expect(told(undefined, [refused, large])).toEqual([])
  })
})

it('the timeline shows each transition in its lane, with a link to the run that wrote it', () => {
  const runs = [run(5, 20, [['Ready', 'False', 10]], [['Ready', 'True', 20]])]
  const given = situation({ object: siteWith('9', ['Ready', 'True', 20]) })
  const { text } = history(given, runs, new Date(at(60)))
  expect(text).toContain('Ready False → True At20')
  expect(text).toContain('Ready=False At10')
  expect(text.match(/href="\/runs\/5"/g)?.length).toBe(4)
})
