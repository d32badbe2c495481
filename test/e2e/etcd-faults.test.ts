import { afterAll, describe, expect, it } from 'vitest'
import { useRegisters } from '../soak/etcd/clients.ts'
import { violationOf } from '../soak/etcd/linearizable.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { randomFrom } from '../support/random.ts'
import { EtcdClusters } from './etcd-clusters.ts'
import { faultsUntil } from './etcd-faults.ts'
import { until } from './world.ts'

const turn = await takeTurnWithNode()
afterAll(turn.end)

const SEED = Number(process.env['FAIRLEAD_ETCD_SEED'] ?? Date.now() % 1_000_000)
const MINUTES = Number(process.env['FAIRLEAD_ETCD_MINUTES'] ?? 0.5)
const CLIENTS = 5
const SIZE = 3
/** How often clients learn of new members. */
const LOOK_MS = 500

describe.skipIf(turn.skip)('an EtcdCluster under random faults', () => {
  it(`is linearizable for its clients, and comes back to its size, FAIRLEAD_ETCD_SEED=${SEED}`, {
    timeout: MINUTES * 60_000 + 600_000,
  }, async () => {
    await using clusters = await EtcdClusters.start()
    const name = 'faults'
    await clusters.create(name, { size: SIZE })
    await until(() => clusters.isSettled(name))

    let endpoints: string[] = []
    const look = async () => {
      endpoints = await clusters.urls(name)
    }
    await look()
    const looking = setInterval(() => void look().catch(() => undefined), LOOK_MS)
    const over = new AbortController()
    const traffic = useRegisters({
      endpoints: () => endpoints,
      count: CLIENTS,
      random: randomFrom(SEED + 1),
      signal: over.signal,
    })
    const random = randomFrom(SEED)
    const happened = await faultsUntil(AbortSignal.timeout(MINUTES * 60_000), { clusters, name, random })
    await clusters.edit(name, { size: SIZE })
    await until(() => clusters.isSettled(name))
    over.abort()
    clearInterval(looking)

    const { history, done, failed, outagesMs } = await traffic
    const long = outagesMs.filter((ms) => ms > 1000).length
    const longest = Math.round(Math.max(0, ...outagesMs))
    console.log(
      `${JSON.stringify(happened)}; ${done} operations, ${failed} without an answer; a client was without for ${longest} ms at most, ${long} times for more than 1 s`,
    )
    const violations = [...history].flatMap(([register, operations]) => {
      const violation = violationOf(operations)
      return violation === undefined ? [] : [`${register}: ${violation}`]
    })
    expect(violations).toEqual([])
    expect(done).toBeGreaterThan(0)
  })
})
