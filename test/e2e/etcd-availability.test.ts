import { afterAll, describe, expect, it } from 'vitest'
import { openEtcd } from '#functions/etcd/client'
import { type Happening, outagesByCause, unsavedOf } from '../soak/etcd/outages.ts'
import { takeTurnInSoak } from '../support/node.ts'
import { randomFrom } from '../support/random.ts'
import { sharedEtcds } from './etcd-suite.ts'
import { timelineOf } from './etcd-timeline.ts'
import { EtcdTraffic } from './etcd-traffic.ts'
import { until } from './world.ts'

const turn = await takeTurnInSoak()
afterAll(turn.end)

const SLOW = { timeout: 900_000 }
const SOON = { timeoutMs: 5000 }
const MIB = 1024 * 1024
const CREATIONS = 3
/** What takes longer is shown in detail. */
const LONG_MS = 60_000

describe.skipIf(turn.skip)('clients of an EtcdCluster on a real node', () => {
  const etcds = sharedEtcds()

  it('get three voters, each of which is ready', SLOW, async () => {
    for (let at = 0; at < CREATIONS; at++) {
      const over = new AbortController()
      const name = `new-${at}`
      const lines = timelineOf(etcds.world.kube, name, over.signal)
      await etcds.create(name, { size: 3 })
      const { size, members } = await etcds.settled(name, 3, `create ${name}`)
      over.abort()
      console.log(lines.join('\n'))
      expect([size, members?.ready.length]).toEqual([3, 3])
      await etcds.remove(name)
      await until(async () => (await etcds.pods(name)).length === 0)
    }
  })

  it('read what was written, whatever is asked of the cluster', SLOW, async () => {
    const name = 'used'
    await etcds.create(name, { size: 3, version: '3.6.16' })
    await etcds.settled(name, 3, 'create')
    const traffic = await EtcdTraffic.start(etcds, name, randomFrom(1))
    const happenings: Happening[] = []
    /** Until the cluster has so many members again, and without those that go. */
    const ask = async (what: string, act: () => Promise<unknown>, size = 3, without = '') => {
      const over = new AbortController()
      const lines = timelineOf(etcds.world.kube, name, over.signal)
      const happening: Happening = { what, at: performance.now() }
      happenings.push(happening)
      await act()
      await etcds.settled(name, size, what, without)
      over.abort()
      happening.wholeAt = performance.now()
      if (happening.wholeAt - happening.at > LONG_MS) console.log(lines.join('\n'))
    }
    const evict = async (what: string, leads: boolean, grace: number) => {
      const { leader = '', members } = await etcds.statusOf(name)
      const pod = leads ? leader : members!.ready.find((one) => one !== leader)!
      await ask(what, () => etcds.kill(pod, grace), 3, pod)
    }
    await ask('size 5', () => etcds.edit(name, { size: 5 }), 5)
    await ask('size 3', () => etcds.edit(name, { size: 3 }))
    await ask('version 3.7.3', () => etcds.edit(name, { version: '3.7.3' }))
    await ask('another pod policy', () => etcds.edit(name, { pod: { labels: { team: 'red' } } }))
    await ask('files with free space', async () => {
      const urls = await etcds.urls(name)
      await makeFreeSpace(urls[0]!)
      const sizes = await Promise.all(urls.map(sizeOf))
      expect(sizes.filter((size) => size < 200 * MIB)).toEqual([])
      await etcds.merge(name, { metadata: { annotations: { look: 'now' } } })
      await until(async () => {
        const sizes = await Promise.all((await etcds.urls(name)).map(sizeOf))
        return sizes.every((size) => size < 100 * MIB)
      })
    })
    await evict('a follower is evicted', false, 30)
    await evict('the leader is evicted', true, 30)
    await evict('a follower is killed', false, 0)
    await evict('the leader is killed', true, 0)
    await ask('version 3.6.16', () => etcds.edit(name, { version: '3.6.16' }))
    const { violations, done, outages } = await traffic.stop()
    console.log([`${done} operations`, outagesByCause(happenings, outages), ...unsavedOf(outages)].join('\n'))
    expect(violations).toEqual([])
    expect(done).toBeGreaterThan(0)
    await etcds.remove(name)
  })
})

/** Writes 250 MiB, and lets them be forgotten. */
async function makeFreeSpace(url: string): Promise<void> {
  using etcd = openEtcd({ url })
  const key = (at: number) => Buffer.from(`large-${at}`)
  for (let at = 0; at < 250; at++) await etcd.call('put', { key: key(at % 2), value: Buffer.alloc(MIB) }, SOON)
  for (const at of [0, 1]) await etcd.call('put', { key: key(at), value: Buffer.alloc(1) }, SOON)
  const { header } = await etcd.call('status', {}, SOON)
  await etcd.call('compact', { revision: header.revision, physical: true }, { timeoutMs: 60_000 })
}

async function sizeOf(url: string): Promise<number> {
  using etcd = openEtcd({ url })
  const { dbSize } = await etcd.call('status', {}, SOON)
  return dbSize
}
