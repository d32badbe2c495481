import { type AfterOutage, surviveOutage } from '../e2e/outage.ts'
import { startWorld } from '../e2e/world.ts'

/** The servers return so long before the At is due. */
const BACK_BEFORE_MS = 30_000
/** The tolerance for load of the machine. */
const LATE_MS = 5000

/** An At waits so long while everything is dead: its pod must come at its time, once. Gives what went wrong. */
export async function soakWait(minutes: number, say: (line: string) => void): Promise<string[]> {
  await using world = await startWorld()
  const waitingMs = minutes * 60_000
  const backMs = waitingMs - BACK_BEFORE_MS
  const after = await surviveOutage(world, { missedMs: backMs / 2, waitingMs, backMs, say })
  const { due, backAt, created } = after
  const lateMs = Number(created.waiting[0]) - due.waiting
  say(`due in the outage: its pod was made ${Number(created.missed[0]) - backAt} ms after the servers' return`)
  say(`due ${minutes} min after it was made: its pod was made ${lateMs} ms after its time`)
  return wrongIn(after, lateMs)
}

function wrongIn({ before, podsBetween, created }: AfterOutage, lateMs: number): string[] {
  const wrong: string[] = []
  if (before.join() !== 'PENDING,PENDING') wrong.push(`before the outage the Ats were ${before.join()}`)
  if (podsBetween > 0) wrong.push(`${podsBetween} pods were there before Fairlead was`)
  for (const [name, { length }] of Object.entries(created))
    if (length !== 1) wrong.push(`the pod of ${name} was made ${length} times`)
  if (lateMs < 0) wrong.push(`the pod was made ${-lateMs} ms too early`)
  if (lateMs > LATE_MS) wrong.push(`the pod was made ${lateMs} ms late`)
  return wrong
}
