import { tokenFrom } from './codec.ts'
import { type Core, operate } from './core.ts'
import type { RetryResult, WithdrawResult } from './intervene.ts'
import { LANES, type Token } from './record.ts'
import { transitions } from './transitions.ts'
import type { KeyOf } from './types.ts'

/** `idle`: the queue held nothing for this key. `running`: the key runs now, and nothing was changed. */
export type RetryOutcome = 'queued' | 'running' | 'idle'
export type WithdrawOutcome = 'parked' | 'purged' | 'running' | 'idle'

export async function retryKey(core: Core, of: KeyOf, signal?: AbortSignal): Promise<RetryOutcome> {
  const result: RetryResult = await operate(core, transitions.retry, {}, of, signal && { signal })
  if (result !== 'none') return result
  return (await tokensOf(core, of)).length > 0 ? 'queued' : 'idle'
}

export async function withdrawKey(
  core: Core,
  of: KeyOf,
  to: 'park' | 'purge',
  signal?: AbortSignal,
): Promise<WithdrawOutcome> {
  const input = { to, nonce: core.nonce(), tokens: await tokensOf(core, of) }
  const result: WithdrawResult = await operate(core, transitions.withdraw, input, of, signal && { signal })
  return result === 'none' ? 'idle' : result
}

async function tokensOf({ js, names }: Core, { reconciler, key }: KeyOf): Promise<Token[]> {
  const found = await Promise.all(
    LANES.map(async (lane) => {
      const message = await js.lastOf(names.stream, names.token(reconciler, lane, key))
      return message && tokenFrom(message, lane)
    }),
  )
  return found.filter((token) => token !== undefined)
}
