import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { stringify } from 'yaml'
import { loadKubeConfig, resourcePath } from '#kube'
import { startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'
import { Item } from './clusters-functions.ts'
import { changedKubeConfig, MODULE, type Served, type Site, startSites } from './clusters-world.ts'

let sites: Awaited<ReturnType<typeof startSites<'a' | 'b'>>>
beforeAll(async () => {
  sites = await startSites(['a', 'b'])
})
afterAll(() => sites?.[Symbol.asyncDispose]())

/**
 * A gateway in front of a cluster, with its credential: clients cannot tell which cluster answers. It never answers requests
 * for ConfigMaps of the namespace `slow`, as if a webhook for them hung.
 */
async function startGateway(name: string, first: Site) {
  const to = async ({ cluster }: Site) => {
    const { server, ca, cert, key } = await loadKubeConfig({ paths: [cluster.kubeconfig] })
    const { hostname, port } = new URL(server)
    return { hostname, port, ca, cert, key }
  }
  let target = await to(first)
  let hung = 0
  const server = createServer((incoming, outgoing) => {
    const { method, url: path = '', headers } = incoming
    if (path.includes('/namespaces/slow/configmaps')) return void hung++
    const onward = request({ ...target, method, path, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 0, answer.headers)
      // The answer to a watch has no body before the first change.
      outgoing.flushHeaders()
      answer.pipe(outgoing)
    })
    for (const one of [onward, outgoing]) one.on('error', () => undefined).on('close', () => onward.destroy())
    incoming.pipe(onward)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const kubeconfig = join(sites.dir, name)
  const { port } = server.address() as AddressInfo
  await writeFile(
    kubeconfig,
    stringify({
      clusters: [{ name: 'c', cluster: { server: `http://127.0.0.1:${port}` } }],
      contexts: [{ name: 'c', context: { cluster: 'c' } }],
      'current-context': 'c',
    }),
  )
  return {
    kubeconfig,
    get hung() {
      return hung
    },
    async lead(site: Site) {
      target = await to(site)
      server.closeAllConnections()
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** The states that the cluster had, in order. */
const states = (up: Served, name: string) =>
  up.process.logs.flatMap((line) => (line.msg === 'cluster' && line['cluster'] === name ? [line['state']] : []))

describe('a cluster is left', () => {
  it('not while it answers: requests for one namespace hang, and all other objects are followed', async () => {
    const a = sites.site('a')
    await using gateway = await startGateway('hanging', a)
    await a.kube.create(resourcePath({ group: '', version: 'v1', resource: 'namespaces' }), {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name: 'slow' },
    })
    await sites.list([{ name: 'a', kubeconfig: gateway.kubeconfig }])
    await using up = await sites.up()
    await up.entered('a', 'Up')
    await a.create('one', { size: 0 })
    for (let nth = 0; nth < 6; nth++)
      await a.kube.create(resourcePath(Item, 'slow'), {
        apiVersion: `${Item.group}/${Item.version}`,
        kind: Item.kind,
        metadata: { name: `slow-${nth}`, namespace: 'slow' },
        spec: { size: 1 },
      })
    await until(() => gateway.hung >= 6)
    await a.edit('one', 1)
    const unanswered = async () => {
      const { text } = await up.get('/metrics')
      return Number(/^rest_client_requests_total\{code="<error>",method="PATCH".*\} (\d+)/m.exec(text)?.[1] ?? 0)
    }
    await until(async () => (await unanswered()) >= 6, { leastMs: 500 })
    for (const size of [2, 3, 4]) await a.edit('one', size)
    expect(states(up, 'a')).toEqual(['Up'])
  })

  it('when another one answers at its address: it gets no function, and the first continues when it is back', async () => {
    const [a, b] = [sites.site('a'), sites.site('b')]
    await using gateway = await startGateway('moving', a)
    await sites.list([{ name: 'moved', kubeconfig: gateway.kubeconfig }])
    await using up = await sites.up()
    await up.entered('moved', 'Up')
    await a.create('moved', { size: 1 })
    await until(async () => (await a.maps()).includes('moved'))
    await gateway.lead(b)
    const refused = await up.entered('moved', 'Refused')
    expect(refused['because']).toContain('has the objects of cluster')
    expect(up.process.logs.some((line) => String(line['because']).startsWith('another cluster answers'))).toBe(true)
    await expect(b.items()).rejects.toThrow('404')
    const back = up.process.logs.length
    await gateway.lead(a)
    await up.entered('moved', 'Up', 2)
    await a.edit('moved', 2)
    const lists = (from = 0) => up.process.logs.slice(from).filter(({ msg }) => msg === 'listed')
    await until(() => lists(back).length === 3, { what: 'everything is listed again' })
    // Nothing of the other one was compared with what the streams have.
    for (const line of lists()) expect(line).toMatchObject({ because: 'initial', deleted: 0 })
    expect(await a.maps()).toContain('moved')
  })

  it('by the end of the process that has only this one, when another one answers', async () => {
    await using gateway = await startGateway('only', sites.site('a'))
    const env = { NATS_URL: sites.nats.url, KUBECONFIG: gateway.kubeconfig, FAIRLEAD_PREFIX: 'only' }
    await using up = startFairlead(['up', '--install', '-f', MODULE], env)
    await up.logged((line) => line.msg === 'listed' && line['resource'] === 'configmaps.v1')
    await gateway.lead(sites.site('b'))
    expect(await up.exited).toMatchObject({ code: 3 })
    expect(up.logs.some((line) => line.msg === 'listed' && line['because'] !== 'initial')).toBe(false)
  })

  it('at the end of the process, also while the plugin for its credential hangs', async () => {
    const a = sites.site('a')
    const exec = { apiVersion: 'client.authentication.k8s.io/v1', command: 'sleep', args: ['600'] }
    const stuck = await changedKubeConfig(a.cluster.kubeconfig, join(sites.dir, 'stuck'), { user: { exec } })
    await sites.list([
      { name: 'a', kubeconfig: a.cluster.kubeconfig },
      { name: 'stuck', kubeconfig: stuck },
    ])
    await using up = await sites.up()
    await up.entered('a', 'Up')
    up.process.kill('SIGTERM')
    expect(await up.process.exited).toMatchObject({ code: 0 })
  })
})
