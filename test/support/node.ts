import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { withLock } from '../../local/lock.ts'

/**
 * A machine has one real node, and test files run side by side: those that start one take turns. Returns when it is
 * this one's turn; the turn ends with the returned call, or with this process.
 */
export async function takeTurnWithNode(): Promise<() => void> {
  const turn = Promise.withResolvers<void>()
  const end = Promise.withResolvers<void>()
  withLock(
    join(tmpdir(), 'fairlead-node-tests.lock'),
    () => {},
    async () => {
      turn.resolve()
      await end.promise
    },
  ).catch(turn.reject)
  await turn.promise
  return end.resolve
}
