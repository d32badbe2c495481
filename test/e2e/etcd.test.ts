import { afterAll, describe, expect, it } from 'vitest'
import { isNotFound } from '#kube'
import { isSoak, takeTurnWithNode } from '../support/node.ts'
import type { EtcdClusters } from './etcd-clusters.ts'
import { trafficWithin } from './etcd-idle.ts'
import { sharedEtcds } from './etcd-suite.ts'
import { leastReady } from './etcd-timeline.ts'
import { tlsOnNode } from './etcd-tls.ts'
import { underFaultsOnNode } from './etcd-under-faults.ts'
import { EtcdWriter } from './etcd-writer.ts'
import { until } from './world.ts'

const turn = await takeTurnWithNode()
afterAll(turn.end)

const SLOW = { timeout: 600_000 }
const QUIET_MS = 15_000

describe.skipIf(turn.skip)('on a real node', () => {
  // One for all suites: a node takes long to start.
  const etcds = sharedEtcds()

  describe('an EtcdCluster', () => {
    onNode(etcds)
  })
  describe('an EtcdCluster that is its own authority', () => {
    tlsOnNode(etcds)
  })
  describe('EtcdClusters under random faults', () => {
    underFaultsOnNode(etcds)
  })
})

function onNode(etcds: EtcdClusters): void {
  afterAll(() =>
    etcds.remove('a').catch((error: unknown) => {
      if (!isNotFound(error)) throw error
    }),
  )

  it('has three members that know each other, and a client reaches them', SLOW, async () => {
    await using _kills = etcds.killing()
    await etcds.create('a', { size: 3 })
    const status = await etcds.settled('a', 3, 'create 3')
    const pods = await etcds.names('a')
    expect(status).toMatchObject({
      phase: 'Running',
      currentVersion: '3.7.3',
      serviceName: 'a-client',
      clientPort: 2379,
    })
    expect(status.members?.ready).toEqual(pods)
    expect(pods).toContain(status.leader)
  })

  it('costs no request and no call while nothing happens', SLOW, async () => {
    const idle = { writes: [], requests: 0, calls: 0 }
    // The consequences of its creation may still be in progress.
    await until(async () => JSON.stringify(await trafficWithin(1000, etcds, 'a')) === JSON.stringify(idle))
    expect(await trafficWithin(QUIET_MS, etcds, 'a')).toEqual(idle)
  })

  it(
    'replaces a member that is killed, and the leader, and loses nothing that a client was told is written',
    SLOW,
    async () => {
      await using _kills = etcds.killing()
      const writer = new EtcdWriter(() => etcds.urls('a'))
      const { leader, members } = await etcds.statusOf('a')
      const follower = members!.ready.find((one) => one !== leader)!
      await etcds.kill(follower)
      await etcds.settled('a', 3, 'replace a follower', follower)
      const { leader: now } = await etcds.statusOf('a')
      await etcds.kill(now!)
      await etcds.settled('a', 3, 'replace the leader', now)
      await until(() => writer.acknowledged.length > 20)
      await writer.stop()
      expect(await writer.missing()).toEqual([])
    },
  )

  it.skipIf(!isSoak)('grows and shrinks under a client', SLOW, async () => {
    await using _kills = etcds.killing()
    const writer = new EtcdWriter(() => etcds.urls('a'))
    for (const size of [5, 1, 3]) {
      await etcds.edit('a', { size })
      await etcds.settled('a', size, `resize to ${size}`)
    }
    await writer.stop()
    expect(await writer.missing()).toEqual([])
    console.log(`${writer.acknowledged.length} values written, longest gap ${Math.round(writer.longestGapMs)} ms`)
  })

  it.skipIf(!isSoak)('gets another pod policy by new members, and keeps its data', SLOW, async () => {
    await using _kills = etcds.killing()
    const writer = new EtcdWriter(() => etcds.urls('a'))
    const before = (await etcds.pods('a')).map(({ metadata }) => metadata.name)
    await etcds.edit('a', { pod: { labels: { team: 'red' } } })
    await etcds.settled('a', 3, 'another pod policy')
    const pods = await etcds.pods('a')
    expect(pods.filter(({ metadata }) => before.includes(metadata.name))).toEqual([])
    expect(pods.map(({ metadata }) => metadata.labels?.['team'])).toEqual(['red', 'red', 'red'])
    await writer.stop()
    expect(await writer.missing()).toEqual([])
  })

  it.skipIf(!isSoak)(
    'does nothing while it is paused, and says when its quorum is lost, without deleting anything',
    SLOW,
    async () => {
      await using _kills = etcds.killing()
      await etcds.edit('a', { paused: true })
      await until(async () => (await etcds.statusOf('a')).controlPaused === true)
      const [one, two, three] = (await etcds.pods('a')).map(({ metadata }) => metadata.name)
      await etcds.kill(one!)
      await etcds.kill(two!)
      await until(async () => {
        const { conditions = [], members } = await etcds.statusOf('a')
        const available = conditions.find(({ type }) => type === 'Available')
        const isLost = available?.status === 'False' && available.reason === 'QuorumLost'
        return isLost && members?.ready.length === 0 && available.message?.includes('Nothing is deleted')
      })
      await etcds.edit('a', { paused: false })
      await until(async () => (await etcds.statusOf('a')).controlPaused === false)
      expect((await etcds.pods('a')).map(({ metadata }) => metadata.name)).toEqual([three])
      await etcds.remove('a')
    },
  )

  it.skipIf(!isSoak)(
    'takes another version in place, the leader last, two of three always Ready, and goes back',
    SLOW,
    async () => {
      await using _kills = etcds.killing()
      await etcds.create('b', { size: 3, version: '3.6.16' })
      await etcds.settled('b', 3, 'create 3 of 3.6')
      const writer = new EtcdWriter(() => etcds.urls('b'))
      const before = (await etcds.pods('b')).map(({ metadata }) => metadata.uid ?? '').sort()
      for (const [version, leastReadyPods] of [
        ['3.7.3', 2],
        ['3.6.16', 1],
      ] as const) {
        const over = new AbortController()
        const least = leastReady(etcds.world.kube, await etcds.pods('b'), over.signal)
        await etcds.edit('b', { version })
        const status = await etcds.settled('b', 3, `another version, ${version}`)
        over.abort()
        expect(status.currentVersion).toBe(version)
        expect(await least).toBeGreaterThanOrEqual(leastReadyPods)
        const pods = (await etcds.pods('b')).map(({ metadata }) => metadata.uid ?? '').sort()
        // A member that does not start with the lower version is replaced.
        expect(version === '3.7.3' ? pods : before).toEqual(before)
        expect(Object.values(status.versions ?? {})).toEqual([version, version, version])
      }
      await writer.stop()
      expect(await writer.missing()).toEqual([])
      await etcds.remove('b')
    },
  )
}
