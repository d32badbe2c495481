import { describe, expect, it } from 'vitest'
import type { LogLine } from '../support/fairlead.ts'
import { overlaps, runsOf } from '../support/runs.ts'

const line = (step: 'started' | 'renewed' | 'ended' | 'finished', time: number, fields: object = {}): LogLine => ({
  level: 'debug',
  msg: 'run',
  time: new Date(time).toISOString(),
  reconciler: 'at',
  key: 'default/a',
  step,
  leaseUntil: new Date(4000).toISOString(),
  ...fields,
})

describe('runs read from logs', () => {
  const whole = runsOf([line('started', 1000), line('ended', 1050), line('finished', 1090)], 1, 5000)

  it('end when the function and its writes did, not when that was stored', () => {
    expect(whole).toEqual([{ key: 'at/default/a', from: 1000, to: 1050, process: 1 }])
  })

  it('end with their lease if their process says it later, and not before they end if the lease is longer', () => {
    const endOf = (leaseUntil: number) =>
      runsOf(
        [line('started', 1000), line('ended', 5000, { leaseUntil: new Date(leaseUntil).toISOString() })],
        1,
        9000,
      )[0]?.to
    expect([endOf(4000), endOf(5000), endOf(6000)]).toEqual([4000, 5000, 5000])
  })

  it('end with their process if it was killed, or with the lease that they had by then', () => {
    const renewed = { ...line('renewed', 3000, { leaseUntil: new Date(6000).toISOString() }), msg: 'lease renewed' }
    const cutAt = (killed: number, logs: LogLine[]) => runsOf([line('started', 1000), ...logs], 1, killed)[0]?.to
    expect([cutAt(3900, []), cutAt(5000, []), cutAt(5000, [renewed]), cutAt(7000, [renewed])]).toEqual([
      3900, 4000, 5000, 6000,
    ])
  })

  it('overlap where one begins before another of the key has ended, however many began in between', () => {
    const at = (from: number) => runsOf([line('started', from), line('ended', from + 10)], 2, 5000)
    expect(overlaps([...whole, ...at(1050)])).toEqual([])
    expect(overlaps([...whole, ...at(1049)])).toHaveLength(1)
    expect(overlaps([...whole, ...at(1010), ...at(1030)])).toHaveLength(2)
  })
})
