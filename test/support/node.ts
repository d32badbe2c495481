import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { withLock } from '../../packages/lab/lock.ts'
import { nodeHolder } from '../../packages/lab/node/node.ts'
import { nodeRequirements } from '../../packages/lab/node/requirements.ts'

/**
 * A machine has one real node, and test files run side by side: those that start one take turns. Returns when it is
 * this file's turn, or when it is clear that there is none to have: that is printed, and `skip` is true.
 *
 *     const turn = await takeTurnWithNode()
 *     afterAll(turn.end)
 *     describe.skipIf(turn.skip)(…)
 */
export async function takeTurnWithNode(): Promise<{ skip: boolean; end: () => void }> {
  const turn = Promise.withResolvers<void>()
  const end = Promise.withResolvers<void>()
  const held = async () => {
    turn.resolve()
    await end.promise
  }
  withLock(join(tmpdir(), 'fairlead-node-tests.lock'), () => {}, held).catch(turn.reject)
  await turn.promise
  const why = await whyNoNode()
  if (why === undefined) return { skip: false, end: end.resolve }
  console.log(`Tests of a real node are skipped: ${why}`)
  end.resolve()
  return { skip: true, end: end.resolve }
}

/** As takeTurnWithNode(), for tests that take minutes: only where `npm run soak etcd` runs them. */
export const takeTurnInSoak = (): ReturnType<typeof takeTurnWithNode> =>
  isSoak ? takeTurnWithNode() : Promise.resolve({ skip: true, end: () => {} })

/** Set by test/soak/etcd.ts. */
export const isSoak = process.env['FAIRLEAD_ETCD_MINUTES'] !== undefined

async function whyNoNode(): Promise<string | undefined> {
  const requirements = await nodeRequirements()
  if (!requirements.ok) return `this machine lacks ${requirements.missing.join(', ')}`
  const holder = await nodeHolder()
  return holder && `the cluster in ${holder} has the one node of this machine`
}
