import { readFile, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { Deployment, kind, Namespace, Node, Service, StatefulSet } from 'fairlead'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import type { KubeObject, ResourceRef } from '#contracts'
import { isNotFound, loadKubeConfig, resourcePath } from '#kube'
import { kubeconfigOf } from '../support/account.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { Drain, Gateway } from './drain.ts'
import { startWorld, until, type World } from './world.ts'

const FUNCTION = fileURLToPath(new URL('drain.ts', import.meta.url))
const CRDS = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }
const ROLES = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterroles' }
const ACCOUNT = 'system:serviceaccount:fairlead-system:fairlead-drain'
const OLD = kind({ group: 'example.net', version: 'v1beta1', kind: 'Gateway', plural: 'gateways' })

const versionOf = (name: string, served: boolean, storage: boolean) => ({
  name,
  served,
  storage,
  subresources: { status: {} },
  schema: {
    openAPIV3Schema: {
      type: 'object',
      properties: {
        status: {
          type: 'object',
          properties: {
            conditions: {
              type: 'array',
              'x-kubernetes-list-type': 'map',
              'x-kubernetes-list-map-keys': ['type'],
              items: {
                type: 'object',
                required: ['type', 'status', 'reason', 'message', 'lastTransitionTime'],
                properties: Object.fromEntries(
                  ['type', 'status', 'reason', 'message', 'lastTransitionTime'].map((name) => [
                    name,
                    { type: 'string' },
                  ]),
                ),
              },
            },
          },
        },
      },
    },
  },
})
const gatewayCrd = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'gateways.example.net' },
  spec: {
    group: 'example.net',
    scope: 'Namespaced',
    names: { kind: 'Gateway', plural: 'gateways', singular: 'gateway', listKind: 'GatewayList' },
    versions: [versionOf('v1', true, false), versionOf('v1beta1', true, true)],
  },
}

const labels = { app: 'web' }
const template = { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'busybox' }] } }
const statefulSet = {
  apiVersion: 'apps/v1',
  kind: 'StatefulSet',
  metadata: { name: 'db' },
  spec: { serviceName: 'db', selector: { matchLabels: labels }, template },
}
const theirs = {
  type: 'Accepted',
  status: 'True',
  reason: 'Ok',
  message: '',
  lastTransitionTime: '2029-01-01T00:00:00Z',
}

let world: World
let proxy: Awaited<ReturnType<typeof startProxy>>
let env: Record<string, string>

/**
 * A proxy in front of the API server, which adds no rights. After `cut`, it passes on the first request that matches, and
 * keeps the answer.
 */
async function startProxy(kubeconfig: string) {
  const { server: target, ca } = await loadKubeConfig({ paths: [kubeconfig] })
  const { hostname, port: targetPort } = new URL(target)
  let cut: { matches: (method: string, url: string) => boolean; done: () => void } | undefined
  const pass = async (incoming: IncomingMessage, response: ServerResponse) => {
    const { method = '', url = '', headers } = incoming
    const onward = request({ hostname, port: targetPort, path: url, method, headers, ca })
    response.on('close', () => onward.destroy())
    onward.on('error', () => response.destroy())
    if (method !== 'GET') onward.end(await buffer(incoming))
    else onward.end()
    onward.on('response', (answer) => {
      if (cut?.matches(method, url)) {
        const { done } = cut
        cut = undefined
        answer.resume().on('end', done)
        return
      }
      response.writeHead(answer.statusCode ?? 0, answer.headers)
      answer.pipe(response)
    })
  }
  const server = createServer((incoming, response) => void pass(incoming, response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Resolves when the API server has answered such a request, whose sender never learns of it. */
    cut: (matches: (method: string, url: string) => boolean) =>
      new Promise<void>((done) => {
        cut = { matches, done }
      }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function throughProxy(kubeconfig: string, url: string): Promise<string> {
  const config = parse(await readFile(kubeconfig, 'utf8')) as { clusters: { cluster: object }[] }
  const file = `${kubeconfig}.proxy`
  await writeFile(
    file,
    stringify({ ...config, clusters: config.clusters.map((one) => ({ ...one, cluster: { server: url } })) }),
  )
  return file
}

beforeAll(async () => {
  world = await startWorld({ controllers: true }, async (admin) => {
    const installed = await command(['install', '-f', FUNCTION], admin)
    if (installed.code !== 0) throw new Error(installed.stderr)
  })
  const account = { namespace: 'fairlead-system', name: 'fairlead' }
  proxy = await startProxy(world.cluster.kubeconfig)
  env = {
    ...world.env,
    KUBECONFIG: await throughProxy(await kubeconfigOf(world.kube, world.cluster.kubeconfig, account), proxy.url),
  }
  await world.kube.create(resourcePath(CRDS), gatewayCrd)
  await until(async () =>
    world.kube
      .list(resourcePath(Gateway))
      .next()
      .then(
        () => true,
        () => false,
      ),
  )
  for (const name of ['a', 'b'])
    await world.kube.create(resourcePath(Node), { apiVersion: 'v1', kind: 'Node', metadata: { name } })
  for (const [name, team] of [
    ['red-1', 'red'],
    ['red-2', 'red'],
    ['blue-1', 'blue'],
  ])
    await world.kube.create(resourcePath(Namespace), { metadata: { name, labels: { team } } })
  // Its owner leaves out the replicas, as the documentation of server-side apply tells to.
  await world.kube.apply(
    resourcePath(Deployment, 'default', 'web'),
    {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'web' },
      spec: { selector: { matchLabels: labels }, template },
    },
    { fieldManager: 'their-pipeline' },
  )
  await world.kube.create(resourcePath(Service, 'default'), {
    metadata: { name: 'web' },
    spec: { ports: [{ port: 80 }] },
  })
  await world.kube.create(resourcePath(OLD, 'default'), {
    apiVersion: 'example.net/v1beta1',
    kind: 'Gateway',
    metadata: { name: 'edge' },
  })
  await world.kube.patch(
    resourcePath(OLD, 'default', 'edge', 'status'),
    { status: { conditions: [theirs] } },
    'merge',
    {
      fieldManager: 'their-controller',
    },
  )
})

afterAll(async () => {
  await proxy?.[Symbol.asyncDispose]()
  await world?.[Symbol.asyncDispose]()
})

const up = async () => {
  const running = startFairlead(['up', '-f', FUNCTION], env)
  await running.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'drain')
  return running
}
const get = (ref: ResourceRef, name: string, namespace?: string) =>
  world.kube.get<KubeObject>(resourcePath(ref, namespace, name))
const create = (name: string, spec: object) =>
  world.kube.create(resourcePath(Drain, 'default'), {
    apiVersion: 'example.com/v1',
    kind: 'Drain',
    metadata: { name },
    spec,
  })
const edit = (name: string, spec: object) => world.kube.patch(resourcePath(Drain, 'default', name), { spec }, 'merge')
const remove = async (name: string) => {
  await world.kube.delete(resourcePath(Drain, 'default', name))
  await gone(name)
}
const gone = (name: string) =>
  until(() =>
    get(Drain, name, 'default').then(
      () => false,
      (error: unknown) => isNotFound(error),
    ),
  )
const condition = async (name: string, type = 'Reconciled') =>
  (
    (await get(Drain, name, 'default')).status as { conditions?: Record<string, string>[] } | undefined
  )?.conditions?.find((one) => one['type'] === type)
const isCordoned = async (name: string) =>
  ((await get(Node, name)).spec as { unschedulable?: boolean }).unschedulable === true
const replicas = async () => ((await get(Deployment, 'web', 'default')).spec as { replicas?: number }).replicas
const note = async () => (await get(Service, 'web', 'default')).metadata.annotations?.['example.com/note']
const marked = async () => {
  const found: string[] = []
  for await (const { items } of world.kube.list(resourcePath(Namespace)))
    found.push(
      ...items.filter(({ metadata }) => metadata.labels?.['draining'] === 'yes').map(({ metadata }) => metadata.name),
    )
  return found.sort()
}
const conditionsOf = async (ref: ResourceRef = OLD) =>
  ((await get(ref, 'edge', 'default')).status as { conditions: Record<string, string>[] }).conditions
const types = async () => (await conditionsOf()).map(({ type }) => type)
const managers = async (ref: ResourceRef, name: string, namespace?: string) =>
  ((await get(ref, name, namespace)).metadata['managedFields'] as { manager: string }[]).map(({ manager }) => manager)
const recorded = async (name: string) =>
  (await get(Drain, name, 'default')).metadata.annotations?.['patched.fairlead.dev/drain'] ?? ''

describe('fields of others, with the generated rights only', () => {
  it('are set on a Node, a Deployment, a Service, the Namespaces of a team, and the status of a foreign kind', async () => {
    await using _process = await up()
    await create('all', { nodes: ['a'], team: 'red', replicas: 3, note: 'moved', reachable: true })
    await until(async () => (await types()).includes('Reachable'), { leastMs: 50 })
    await until(async () => (await condition('all', 'Reconciled')) === undefined && (await replicas()) === 3)
    await until(async () => (await marked()).length === 2)
    expect(await marked()).toEqual(['red-1', 'red-2'])
    expect([await isCordoned('a'), await isCordoned('b'), await note()]).toEqual([true, false, 'moved'])
    expect((await conditionsOf()).find(({ type }) => type === 'Accepted')).toEqual(theirs)
    expect(await managers(Node, 'a')).toContainEqual(expect.stringMatching(/^patched\.fairlead\.dev\/drain\/.{16}$/))
    const acted = (await world.cluster.audit()).filter(({ actedAs }) => actedAs === ACCOUNT)
    expect(acted.filter(({ code }) => code === 403)).toEqual([])
    expect(acted.some(({ verb, resource }) => verb === 'patch' && resource === 'nodes')).toBe(true)
    const explained = await command(['explain', 'drain/all', '-o', 'json'], world.env)
    expect(explained.stdout).toMatch(/"named": \[[^]*"kind": "Node",[^]*"name": "a"/)
    const listed = await command(['runs', 'ls', '-o', 'json'], world.env)
    const numbers = (JSON.parse(listed.stdout) as { run: number }[]).map(({ run }) => String(run))
    const records = await command(['runs', 'get', ...numbers], world.env)
    expect(records.stdout).toMatch(/"verb":"setFields","kind":"Node","name":"a"/)
  })

  it('are shown by a dry run, which sets nothing, and named by an uninstallation', async () => {
    const before = await Promise.all([get(Node, 'b'), get(Drain, 'all', 'default')])
    await edit('all', { nodes: ['b'] })
    const shown = await command(['run', 'drain', 'all', '--dry-run', '-f', FUNCTION], world.env)
    expect(shown).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/change Node b\n *~ .spec: \{\} → \{"unschedulable":true\}/),
    })
    expect(shown.stdout.match(/change Node a\n *- .spec.unschedulable: true/g)).toHaveLength(1)
    expect(await get(Node, 'b')).toEqual(before[0])
    await edit('all', { nodes: ['a'] })
    const { metadata } = await get(Drain, 'all', 'default')
    expect(metadata.annotations).toEqual(before[1].metadata.annotations)
    const planned = await command(['uninstall', '-f', FUNCTION, '--dry-run'], world.env)
    expect(planned.stdout).toContain('for 1 of them it has set fields of others, which then stay')
  })

  it('are set again when others remove them, and on what comes later; nothing is written while nothing differs', async () => {
    await using running = await up()
    await world.kube.patch(resourcePath(Node, undefined, 'a'), { spec: { unschedulable: null } }, 'merge')
    await until(() => isCordoned('a'), { leastMs: 50 })
    await world.kube.create(resourcePath(Namespace), { metadata: { name: 'red-3', labels: { team: 'red' } } })
    await until(async () => (await marked()).includes('red-3'), { leastMs: 50 })
    await until(
      async () => (await recorded('all')).includes('red-3') && (await recorded('all')).split('"paths"').length === 8,
    )
    const isRun = ({ step, key }: { step?: string; key?: string }) => step === 'finished' && key === 'default/all'
    const writesAfter = async (theirs: string) => {
      const before = running.logs.length
      await world.kube.patch(resourcePath(Node, undefined, 'a'), { metadata: { labels: { theirs } } }, 'merge')
      await until(() => Promise.resolve(running.logs.slice(before).some(isRun)), { leastMs: 50 })
      return running.logs.slice(before).filter(({ step }) => step === 'written')
    }
    // The runs that follow what was written above have more to write.
    let edits = 0
    await until(async () => (await writesAfter(`edit-${edits++}`)).length === 0)
    expect(await writesAfter('last')).toEqual([])
  })

  it('of another manager stay, and the condition names it', async () => {
    await using _process = await up()
    await world.kube.patch(resourcePath(Deployment, 'default', 'web'), { spec: { replicas: 1 } }, 'merge', {
      fieldManager: 'their-scaler',
    })
    await until(async () => (await condition('all'))?.['status'] === 'False', { leastMs: 50 })
    expect(await condition('all')).toMatchObject({
      reason: 'FieldConflict',
      message: expect.stringMatching(/Deployment default\/web.*replicas: conflict with "their-scaler"/),
    })
    expect(await replicas()).toBe(1)
    await edit('all', { replicas: null })
    await until(async () => (await condition('all'))?.['status'] === 'True', { leastMs: 50 })
    expect(await replicas()).toBe(1)
  })

  it('are given back when they are not returned any more, and all when the object goes', async () => {
    await using _process = await up()
    await edit('all', { nodes: ['b'], note: null })
    await until(async () => !(await isCordoned('a')) && (await isCordoned('b')) && (await note()) === undefined)
    await remove('all')
    expect([await isCordoned('b'), await marked(), await types()]).toEqual([false, [], ['Accepted']])
    for (const name of ['a', 'b'])
      expect(await managers(Node, name)).not.toContainEqual(expect.stringContaining('patched.fairlead.dev'))
  })

  it('of two objects stay until both have given them back', async () => {
    await using _process = await up()
    await create('one', { nodes: ['a'] })
    await create('two', { nodes: ['a'] })
    await until(async () => (await managers(Node, 'a')).filter((name) => name.startsWith('patched.')).length === 2)
    await remove('one')
    expect(await isCordoned('a')).toBe(true)
    await remove('two')
    expect(await isCordoned('a')).toBe(false)
  })

  it('are given back after kill -9 between the write and its record, although they are not returned any more', async () => {
    {
      await using running = await up()
      const written = proxy.cut((method, url) => method === 'PATCH' && url.includes('/nodes/a'))
      await create('killed', { nodes: ['a'] })
      await written
      running.kill('SIGKILL')
      await running.exited
    }
    expect(await isCordoned('a')).toBe(true)
    expect(await recorded('killed')).toContain('"name":"a"')
    await edit('killed', { nodes: ['b'] })
    await using _process = await up()
    await until(async () => (await isCordoned('b')) && !(await isCordoned('a')), { leastMs: 50 })
    await remove('killed')
    expect(await isCordoned('b')).toBe(false)
  })

  it('are taken from their owner if that is declared, also again, and get the value that the owner set last', async () => {
    await using running = await up()
    const path = resourcePath(StatefulSet, 'default', 'db')
    const applied = (replicas: number) =>
      world.kube.apply(
        path,
        { ...statefulSet, spec: { ...statefulSet.spec, replicas } },
        { fieldManager: 'their-pipeline' },
      )
    const size = async () => ((await get(StatefulSet, 'db', 'default')).spec as { replicas?: number }).replicas
    await applied(5)
    await create('taken', { size: 0 })
    await until(async () => (await size()) === 0, { leastMs: 50 })
    await expect(applied(5)).rejects.toThrow(/conflict with "patched.fairlead.dev\/drain\//)
    await until(async () => (await recorded('taken')).includes('"paths"'))
    // As `kubectl replace` with a manifest that has neither, and another spec.
    const bare = { metadata: { annotations: null, finalizers: null }, spec: { size: 1 } }
    await world.kube.patch(resourcePath(Drain, 'default', 'taken'), bare, 'merge')
    await until(async () => /"paths".*"spec.replicas":5/.test(await recorded('taken')) && (await size()) === 1, {
      leastMs: 50,
    })
    await world.kube.patch(path, { spec: { replicas: 7 } }, 'merge', { fieldManager: 'their-scaler' })
    await until(async () => (await recorded('taken')).includes('"spec.replicas":7') && (await size()) === 1, {
      leastMs: 50,
    })
    const before = running.logs.length
    await edit('taken', { size: 7 })
    await until(async () => (await size()) === 7, { leastMs: 50 })
    const isRun = ({ step, key }: { step?: string; key?: string }) => step === 'finished' && key === 'default/taken'
    await until(() => Promise.resolve(running.logs.slice(before).some(isRun)), { leastMs: 50 })
    await remove('taken')
    expect([await size(), await managers(StatefulSet, 'db', 'default')]).toEqual([
      7,
      expect.not.arrayContaining([expect.stringContaining('patched.')]),
    ])
    expect(JSON.stringify((await get(StatefulSet, 'db', 'default')).metadata.annotations ?? {})).not.toContain(
      'before_',
    )
    await applied(6)
    expect(await size()).toBe(6)
  })

  it('of another object with the same name get the value of this one', async () => {
    await using _process = await up()
    const path = resourcePath(StatefulSet, 'default', 'db')
    const size = async () => ((await get(StatefulSet, 'db', 'default')).spec as { replicas?: number }).replicas
    const applied = (spec: object) =>
      world.kube.apply(
        path,
        { ...statefulSet, spec: { ...statefulSet.spec, ...spec } },
        { fieldManager: 'their-pipeline' },
      )
    await applied({ replicas: 50 })
    await create('again', { size: 0 })
    await until(async () => (await size()) === 0 && (await recorded('again')).includes('"paths"'), { leastMs: 50 })
    await world.kube.delete(path)
    await applied({})
    await until(async () => /"spec.replicas":1[,}]/.test(await recorded('again')) && (await size()) === 0, {
      leastMs: 50,
    })
    await remove('again')
    expect(await size()).toBe(1)
  })

  it('are taken by one object at a time, even at one value: the second would return that of the first', async () => {
    await using _process = await up()
    const size = async () => ((await get(StatefulSet, 'db', 'default')).spec as { replicas?: number }).replicas
    const ours = async () =>
      (await managers(StatefulSet, 'db', 'default')).filter((name) => name.startsWith('patched.')).length
    const owned = { ...statefulSet, spec: { ...statefulSet.spec, replicas: 6 } }
    await world.kube.apply(resourcePath(StatefulSet, 'default', 'db'), owned, { fieldManager: 'their-pipeline' })
    await create('first', { size: 0 })
    await until(async () => (await size()) === 0 && (await recorded('first')).includes('"paths"'), { leastMs: 50 })
    await create('second', { size: 0 })
    await until(async () => (await condition('second'))?.['reason'] === 'FieldConflict', { leastMs: 50 })
    expect(await ours()).toBe(1)
    await remove('first')
    await until(async () => (await recorded('second')).includes('"paths"'), { leastMs: 50, timeoutMs: 60_000 })
    expect([await size(), await ours()]).toEqual([0, 1])
    await remove('second')
    expect([await size(), await ours()]).toEqual([6, 0])
  })

  it('that another manager has set to the same value stay with it, and the object goes', async () => {
    await using _process = await up()
    const path = resourcePath(StatefulSet, 'default', 'db')
    const applied = (replicas: number, fieldManager: string) =>
      world.kube.apply(path, { ...statefulSet, spec: { ...statefulSet.spec, replicas } }, { fieldManager, force: true })
    const size = async () => ((await get(StatefulSet, 'db', 'default')).spec as { replicas?: number }).replicas
    await applied(5, 'their-pipeline')
    await create('shared', { size: 2 })
    await until(async () => (await size()) === 2 && (await recorded('shared')).includes('"paths"'), { leastMs: 50 })
    await applied(2, 'their-other')
    await remove('shared')
    expect(await size()).toBe(2)
  })

  it('that may not be given back keep the object, whose condition names the right; then it goes', async () => {
    await using _process = await up()
    await create('refused', { nodes: ['a'] })
    await until(() => isCordoned('a'))
    const path = resourcePath(ROLES, undefined, 'fairlead-drain')
    const role = await world.kube.get<{ rules: { resources: string[] }[] }>(path)
    const rules = role.rules.filter(({ resources }) => !resources.includes('nodes'))
    await world.kube.patch(path, { rules }, 'merge')
    await world.kube.delete(resourcePath(Drain, 'default', 'refused'))
    await until(async () => (await condition('refused'))?.['reason'] === 'Forbidden', { leastMs: 50 })
    expect((await condition('refused'))?.['message']).toMatch(/cannot give back fields of Node a.*resource "nodes"/s)
    await world.kube.patch(path, { rules: role.rules }, 'merge')
    await gone('refused')
    expect(await isCordoned('a')).toBe(false)
  })

  it('of an object that is gone hold nothing up', async () => {
    await using _process = await up()
    await world.kube.create(resourcePath(Node), { apiVersion: 'v1', kind: 'Node', metadata: { name: 'short' } })
    await create('short', { nodes: ['short'] })
    await until(() => isCordoned('short'))
    await world.kube.delete(resourcePath(Node, undefined, 'short'))
    await remove('short')
  })

  it('are given back in another version, if theirs is not served any more', async () => {
    await using _process = await up()
    await create('old', { reachable: true })
    await until(async () => (await types()).includes('Reachable'), { leastMs: 50 })
    const serve = (v1: boolean) => {
      const versions = [versionOf('v1', v1, false), versionOf('v1beta1', true, true)]
      return world.kube.patch(resourcePath(CRDS, undefined, 'gateways.example.net'), { spec: { versions } }, 'merge')
    }
    await serve(false)
    await until(() =>
      get(Gateway, 'edge', 'default').then(
        () => false,
        () => true,
      ),
    )
    await remove('old')
    expect(await types()).toEqual(['Accepted'])
    await serve(true)
  })

  it('of a kind that is gone hold nothing up', async () => {
    await using _process = await up()
    await create('last', { reachable: true })
    await until(async () => (await types()).includes('Reachable'), { leastMs: 50 })
    await world.kube.delete(resourcePath(CRDS, undefined, 'gateways.example.net'))
    await remove('last')
  })
})
