import { expect, it } from 'vitest'
import type { PerformInput } from '#contracts'
import { TokenBucket } from '#primitives'
import { ExternalCalls } from '../../dispatch/run/reconciliation.ts'
import { widget } from './objects.ts'

const run = { object: widget(), owned: {}, related: {}, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
const input: PerformInput = { ...run, ask: 'perform', effect: { kind: 'set' } }
const perform = { do: 'perform', input, shown: '' } as const
const read = { do: 'read', input: { ...run, ask: 'read' } } as const

function callsWith(options: Partial<ConstructorParameters<typeof ExternalCalls>[0]> = {}) {
  const called: string[] = []
  const calls = new ExternalCalls({
    reconciler: 'r',
    key: 'k',
    rateLimit: undefined,
    skipped: undefined,
    call: async ({ ask }) => called.push(ask),
    hold: () => undefined,
    signal: new AbortController().signal,
    span: () => undefined,
    observe: () => undefined,
    ...options,
  })
  return { calls, called }
}

it('an effect is not performed when the lease is over at that moment', async () => {
  const over = new Error('the lease is over')
  const { calls, called } = callsWith({
    hold: () => {
      throw over
    },
  })
  await expect(calls.perform(perform)).rejects.toBe(over)
  expect(called).toEqual([])
})

it('an effect does not wait for the rate limit, and reads after it do', async () => {
  const rateLimit = new TokenBucket({ perSecond: 0.1, burst: 1 }, () => 0)
  const { calls, called } = callsWith({ rateLimit })
  await calls.read(read)
  await calls.perform(perform)
  expect(await calls.read(read)).toEqual({ did: 'read', limitedMs: 20_000 })
  expect(called).toEqual(['read', 'perform'])
})
