import { expect, it } from 'vitest'
import { outagesByCause, unsavedOf } from '../soak/etcd/outages.ts'
import { isSoak } from '../support/node.ts'
import { randomFrom } from '../support/random.ts'
import type { EtcdClusters } from './etcd-clusters.ts'
import { faultsUntil } from './etcd-faults.ts'
import { EtcdTraffic } from './etcd-traffic.ts'
import { until } from './world.ts'

const SEED = Number(process.env['FAIRLEAD_ETCD_SEED'] ?? Date.now() % 1_000_000)
const MINUTES = Number(process.env['FAIRLEAD_ETCD_MINUTES'] ?? 0.25)
const NAMES = isSoak ? ['faults', 'beside'] : ['faults']
const SIZE = 3

export function underFaultsOnNode(clusters: EtcdClusters): void {
  it(`are linearizable for their clients, and come back to their size, FAIRLEAD_ETCD_SEED=${SEED}`, {
    timeout: MINUTES * 60_000 + 600_000,
  }, async () => {
    await Promise.all(NAMES.map((name) => clusters.create(name, { size: SIZE })))
    await Promise.all(NAMES.map((name) => until(() => clusters.isSettled(name))))
    const traffic = await Promise.all(
      NAMES.map((name, index) => EtcdTraffic.start(clusters, name, randomFrom(SEED + 1 + index))),
    )
    const random = randomFrom(SEED)
    const happenings = await faultsUntil(AbortSignal.timeout(MINUTES * 60_000), { clusters, names: NAMES, random })
    const ended = performance.now()
    await Promise.all(NAMES.map((name) => clusters.edit(name, { size: SIZE })))
    await Promise.all(NAMES.map((name) => until(() => clusters.isSettled(name))))
    console.log(`whole again ${Math.round((performance.now() - ended) / 1_000)} s after the last fault`)

    for (const [index, name] of NAMES.entries()) {
      const { violations, done, failed, outages } = await traffic[index]!.stop()
      const own = happenings.filter(({ to }) => to === name)
      const kills = happenings.filter(({ to }) => to === undefined).length
      const told = `${name}: ${done} operations, ${failed} without an answer; ${kills} times a dispatcher was killed`
      console.log([told, outagesByCause(own, outages), ...unsavedOf(outages)].join('\n'))
      expect(violations).toEqual([])
      expect(done).toBeGreaterThan(0)
    }
  })
}
