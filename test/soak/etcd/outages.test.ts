import { describe, expect, it } from 'vitest'
import { type Outage, outagesByCause, unsavedOf } from './outages.ts'

const outage = (calledAt: number, failedAt: number, endedAt: number): Outage => ({
  route: 'members',
  calledAt,
  failedAt,
  endedAt,
  errors: ['no answer within 1000 ms'],
})
const cells = (table: string): string[][] =>
  table.split('\n').map((line) =>
    line
      .trim()
      .split(/\s{2,}/)
      .map((cell) => cell.trim()),
  )

describe('outages', () => {
  const happenings = [
    { what: 'a kill', at: 100, wholeAt: 4100 },
    { what: 'a stall', at: 5000 },
  ]

  it('are those of what happened last before the first failure', () => {
    const [, kill, stall] = cells(outagesByCause(happenings, [outage(50, 150, 400), outage(4900, 5900, 6000)]))
    expect(kill).toEqual(['a kill', '1', '4', '1', '350', '250', '0'])
    expect(stall).toEqual(['a stall', '1', '?', '1', '1100', '100', '0'])
  })

  it('count as not saved where no retry within a second of the failure succeeded', () => {
    const outages = [outage(100, 1100, 2090), outage(100, 1100, 2110)]
    expect(cells(outagesByCause(happenings, outages))[1]).toEqual([
      'a kill',
      '1',
      '4',
      '2',
      '2010',
      '1010',
      '1',
      'members',
    ])
    expect(unsavedOf(outages)).toEqual(['members: 1010 ms: no answer within 1000 ms'])
  })

  it('before anything happened are told as well', () => {
    expect(cells(outagesByCause([], [outage(1, 2, 3)]))[1]?.slice(0, 4)).toEqual(['nothing', '0', '?', '1'])
  })
})
