import type { Delivery, StoredMessage } from '#jetstream'
import { dueOf } from './codec.ts'
import { type Core, measured, operate } from './core.ts'
import type { HeldKey } from './lease.ts'
import type { TakeInput } from './take.ts'
import { transitions } from './transitions.ts'

/** What a key is to be taken by. */
export interface Claim {
  input: Pick<TakeInput, 'token' | 'direct' | 'seen' | 'waiting' | 'isDue'>
  /** Its token, as it is stored. */
  message: StoredMessage | undefined
  /** When it came here, a moment of the clock. */
  cameAt: number
  /** How long after that it may be taken. */
  freshMs: number
  /** Of the token, if it was delivered. */
  delivery: Delivery | undefined
  /** There may be a token of the key all the same, which has failures to count: it is looked for first. */
  mayBeQueued?: boolean
  onOccupied?: () => void
}

/** Since when its key waits, by the server's clock. */
export const queuedAt = ({ clock }: Core, claim: Claim): number =>
  claim.message?.storedAt ?? dueAt(claim) ?? clock.timeOf(claim.cameAt)

/** When the timer is due that the key is taken for, by the server's clock. Undefined: there is another reason. */
export const dueAt = ({ message, input }: Claim): number | undefined =>
  input.isDue ? input.waiting?.at : message && dueOf(message)

/** Takes the key under a lease. Undefined: the key is not to run now, or not here. */
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
