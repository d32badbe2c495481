import { isAlive } from '../identity.ts'
import { isInUse, readClaim } from './claim.ts'
import { nodeWorks } from './cleanup.ts'

/** Returns the folder of the cluster that has this machine's node and still needs it. */
export async function nodeHolder(): Promise<string | undefined> {
  const claim = await readClaim()
  if (claim === undefined) return undefined
  const seen = { starterRuns: isAlive(claim.startedBy), nodeWorks: await nodeWorks(claim.dir) }
  return isInUse(claim, seen) ? claim.dir : undefined
}
