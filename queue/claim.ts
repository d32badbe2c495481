import type { Delivery, StoredMessage } from '#jetstream'
import { dueOf } from './codec.ts'
import { type Core, measured, operate } from './core.ts'
import type { HeldKey } from './lease.ts'
import type { TakeInput } from './take.ts'
import { transitions } from './transitions.ts'

/** The input for taking a key. */
export interface Claim {
  input: Pick<TakeInput, 'token' | 'direct' | 'seen' | 'waiting' | 'isDue'>
  /** The token of the key, as it is stored. */
  message: StoredMessage | undefined
  /** The moment when the claim reached this process, as the clock's `moment()` returns it. */
  cameAt: number
  /** The time after `cameAt` during which the key may be taken, in milliseconds. */
  freshMs: number
  /** The delivery of the token. Undefined: the token was not delivered. */
  delivery: Delivery | undefined
  /** True: a token of the key with a count of failures may exist although none was delivered. It is looked up first. */
  mayBeQueued?: boolean
  onOccupied?: () => void
}

/** Returns when the key began to wait, in the server's time. */
export const queuedAt = ({ clock }: Core, claim: Claim): number =>
  claim.message?.storedAt ?? dueAt(claim) ?? clock.timeOf(claim.cameAt)

/** Returns when the timer that caused this claim was due, in the server's time. Undefined: no timer caused it. */
export const dueAt = ({ message, input }: Claim): number | undefined =>
  input.isDue ? input.waiting?.at : message && dueOf(message)

/** Takes the key under a lease. Undefined: the key must not run now, or not in this process. */
export async function takeKey(
  core: Core,
  of: { reconciler: string; key: string },
  claim: Claim,
  signal: AbortSignal,
): Promise<HeldKey | undefined> {
  const { js, names, clock, terms, observer, log, instance } = core
  const { delivery } = claim
  if (claim.mayBeQueued && (await js.lastOf(names.stream, names.tokens(of.reconciler, of.key)))) return undefined
  if (clock.sure() === undefined) await measured(core, { signal })
  const freshUntil = clock.timeOf(claim.cameAt) + claim.freshMs
  const claimed = { ...claim.input, freshUntil, nonce: core.nonce(), by: instance, terms }
  const result = await operate(core, transitions.take, claimed, of, { delivery, signal })
  if (result.kind === 'dropped') log.warn({ ...of, because: result.because }, 'token not taken')
  if (result.kind === 'occupied') claim.onOccupied?.()
  if (result.kind !== 'leased') return undefined
  const due = dueAt(claim)
  const queued = queuedAt(core, claim)
  observer.onTake?.(of.reconciler, Math.max(0, clock.now() - queued), due && queued - due)
  return result.held
}
