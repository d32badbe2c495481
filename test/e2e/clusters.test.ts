import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../support/wait.ts'
import { changedKubeConfig, type Site, startSites } from './clusters-world.ts'

let sites: Awaited<ReturnType<typeof startSites<'a' | 'b'>>>
beforeAll(async () => {
  sites = await startSites(['a', 'b'])
})
afterAll(() => sites?.[Symbol.asyncDispose]())

const settled = (site: Site, names: readonly string[]) =>
  until(async () => {
    const items = await site.items()
    const maps = await site.maps()
    return names.every(
      (name) =>
        maps.includes(name) && items.some((one) => one.metadata.name === name && one.status?.size === one.spec.size),
    )
  })

describe('one process serves several clusters', () => {
  it('each from streams of its own, and begins without those that do not answer or refuse', async () => {
    const [a, b] = [sites.site('a'), sites.site('b')]
    const own = a.cluster.kubeconfig
    const gone = await changedKubeConfig(own, join(sites.dir, 'gone'), { server: 'https://127.0.0.1:1' })
    const stranger = await changedKubeConfig(own, join(sites.dir, 'stranger'), { user: { token: 'none' } })
    const always = [
      { name: 'a', kubeconfig: own, prefix: '' },
      { name: 'gone', kubeconfig: gone },
      { name: 'stranger', kubeconfig: stranger },
      { name: 'missing', kubeconfig: join(sites.dir, 'missing') },
    ]
    await sites.list(always)
    await using up = await sites.up()
    await up.entered('a', 'Up')
    expect((await up.entered('gone', 'Away'))['because']).toContain('nothing listens at')
    expect((await up.entered('stranger', 'Refused'))['because']).toContain('credentials')
    expect((await up.entered('missing', 'Refused'))['because']).toContain('missing')
    await a.create('one', { size: 1 })
    await settled(a, ['one'])
    const ready = await up.get('/readyz')
    expect(ready.code).toBe(200)
    expect(ready.text).toMatch(/^ok\ncluster a: Up since .*\ncluster gone: Away since .*: .*\n/)
    const text = (await up.get('/metrics')).text
    expect(text).toContain('fairlead_cluster_up{cluster="a"} 1')
    expect(text).toContain('fairlead_cluster_up{cluster="gone"} 0')
    expect(text).toMatch(/controller_runtime_reconcile_total\{.*cluster="a".*\} [1-9]/)

    // Another cluster never continues the streams of this one; one cluster never has two queues.
    await sites.list([
      { name: 'b', kubeconfig: b.cluster.kubeconfig },
      { name: 'again', kubeconfig: own, prefix: 'again' },
      ...always,
    ])
    await up.entered('b', 'Up')
    expect((await up.entered('again', 'Refused'))['because']).toContain('in cluster a')
    await b.create('one', { size: 2 })
    await settled(b, ['one'])

    // A file that cannot be used changes nothing; a cluster that is not listed keeps what it has.
    await sites.list([{ name: 'NOT A NAME', kubeconfig: own }])
    await up.process.logged(({ msg }) => msg.startsWith('the clusters stay as they are'))
    await b.edit('one', 3)
    await sites.list([{ name: 'taken', kubeconfig: b.cluster.kubeconfig, prefix: '' }])
    await up.process.logged(({ msg, cluster }) => cluster === 'a' && msg.startsWith('cluster is not listed'))
    expect((await up.entered('taken', 'Refused'))['because']).toMatch(/in cluster b|has the objects of cluster/)
    await until(async () => (await up.get('/readyz')).code === 503)
    await until(() => up.process.logs.some((line) => String(line['because']).includes('has the objects of cluster')))
    expect([await a.maps(), await b.maps()]).toEqual([['one'], ['one']])
    const [{ status } = {}] = await b.items()
    expect(status?.size).toBe(3)
  })
})
