import { expect, it } from 'vitest'
import { parseOutcome } from '../../reconcile/outcome.ts'
import { drive, returns, widgets } from './driver.ts'

const MIB = 2 ** 20
const small = { ...widgets(), maxStateBytes: MIB }
const maps = (count: number, bytes: number) =>
  Array.from({ length: count }, (_, index) => ({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: `c${index}` },
    data: { filler: 'x'.repeat(bytes) },
  }))

it.each([
  ['too large objects', { apply: maps(3, 400 * 1024) }, '1.2 MiB in 3 objects'],
  ['too many small objects', { apply: maps(1000, 0) }, '1.1 MiB in 1000 objects'],
  ['a status over the limit', { status: { text: 'ä'.repeat(600 * 1024) } }, '1.2 MiB in 0 objects'],
])('nothing of an outcome with %s is written, and its object says what to do', (_, outcome, found) => {
  const steps = drive({ call: [returns({ ...outcome, requeueAfterSeconds: 1 })] }, small)
  const asks = steps.map(({ ask }) => ask)
  expect(asks.map((ask) => ask.do)).toEqual(['observe', 'call', 'writeStatus', 'finish'])
  const said = JSON.stringify(asks[2])
  expect(said).toContain('"status":"False","reason":"AnswerTooLarge"')
  expect(said).toMatch(
    new RegExp(`returned ${found} .* reads 1 MiB at most\\. Return fewer .* raise FAIRLEAD_MAX_STATE_MIB"`),
  )
  expect(asks[3]).toMatchObject({ finish: { kind: 'error', retryAt: { afterMs: 300_000 } } })
})

it('an outcome within the limit is written, and an answer that is not applied has no limit here', () => {
  const outcome = { apply: maps(2, 400 * 1024) }
  const asked = drive({ call: [returns(outcome)] }, small).map(({ ask }) => ask.do)
  expect(asked).toContain('write')
  expect(parseOutcome({ apply: maps(3, 400 * 1024) }).apply).toHaveLength(3)
})
