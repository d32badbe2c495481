import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { ensureBinaries, silentProgress } from '#lab'
import { pageOf } from '../docs/blocks.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { until } from '../support/wait.ts'

const SDK = new URL('../../sdk/index.ts', import.meta.url).href
const FORMER = 'cache.example.com/finalizer'
const FUNCTION = `import { ConfigMap, Deployment, reconciler, resource, z } from '${SDK}'
const Memcached = resource({
  group: 'cache.example.com', version: 'v1', kind: 'Memcached', plural: 'memcacheds',
  spec: z.object({ size: z.int32() }), status: z.object({}),
})
export const memcached = reconciler({
  name: 'memcached', for: Memcached, owns: [Deployment, ConfigMap], formerFinalizers: ['${FORMER}'],
  reconcile({ object: { metadata, spec } }) {
    const labels = { app: metadata.name }
    const template = { metadata: { labels }, spec: { containers: [{ name: 'memcached', image: 'memcached:1.6' }] } }
    const replicas = spec.size
    return { apply: [Deployment.of({ metadata: { name: metadata.name }, spec: { replicas, selector: { matchLabels: labels }, template } })] }
  },
  finalize({ object: { metadata } }) {
    return { apply: [{ ...ConfigMap.of({ metadata: { name: metadata.name + '-cleaned' } }), retain: true }] }
  },
})
`

/** As an operator of another framework leaves them: written by updates, with its finalizer and a controller reference. */
const memcached = (name: string) => ({
  apiVersion: 'cache.example.com/v1',
  kind: 'Memcached',
  metadata: { name, namespace: 'default', finalizers: [FORMER] },
  spec: { size: 3 },
})
const deploymentOf = ({ apiVersion, kind, metadata: { name, uid } }: KubeObject) => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name, namespace: 'default', ownerReferences: [{ apiVersion, kind, name, uid, controller: true }] },
  spec: {
    replicas: 1,
    selector: { matchLabels: { app: name } },
    template: {
      metadata: { labels: { app: name } },
      spec: { containers: [{ name: 'memcached', image: 'memcached:1.6' }] },
    },
  },
})

const stack = new AsyncDisposableStack()
let kubectl: Kubectl
let env: Record<string, string>
let dir: string

beforeAll(async () => {
  const cluster = stack.use(await borrowCluster({ nats: true }))
  kubectl = await kubectlFor(cluster)
  dir = await mkdtemp(join(tmpdir(), 'fl-move-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  await writeFile(join(dir, 'index.ts'), FUNCTION)
  const programs = dirname((await ensureBinaries(['kubectl'], silentProgress))('kubectl'))
  const path = [programs, process.env['PATH']].join(':')
  env = { PATH: path, KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
})
afterAll(() => stack.disposeAsync())

type Seen = KubeObject & { spec: { replicas?: number }; status?: { conditions?: { reason: string }[] } }
const read = async (what: string) => JSON.parse(await kubectl(['get', what, '-o', 'json'])) as Seen
const isGone = (what: string) =>
  read(what).then(
    () => false,
    (error: Error) => error.message.includes('NotFound'),
  )

it('by docs/coming-from.md, a function takes every object over in place, and removes the finalizer of before', async () => {
  const page = await pageOf('coming-from')
  const [handOver = ''] = /kubectl get memcacheds[^\n]*\n[^\n]*> hand-over\.sh\n *sh hand-over\.sh/.exec(page) ?? []
  const file = join(dir, 'index.ts')
  const { code, stderr } = await command(['install', '-f', file], env)
  expect({ code, stderr }).toMatchObject({ code: 0 })
  for (const name of ['kept', 'going']) {
    await kubectl(['create', '-f', '-'], memcached(name))
    await kubectl(['create', '-f', '-'], deploymentOf(await read(`memcached/${name}`)))
  }
  const before = await read('deployment/kept')
  await kubectl(['delete', 'memcached/going', '--wait=false'])

  await using _up = startFairlead(['up', '-f', file], env)
  await until(() => isGone('memcached/going'), { what: 'what the former operator left waiting has gone' })
  await read('configmap/going-cleaned')
  const isTaken = async () =>
    (await read('memcached/kept')).status?.conditions?.some((one) => one.reason === 'NameTaken')
  await until(async () => (await isTaken()) === true)
  await promisify(execFile)('sh', ['-euc', handOver], { cwd: dir, env })
  await until(async () => (await read('deployment/kept')).spec.replicas === 3)
  expect((await read('deployment/kept')).metadata.uid).toBe(before.metadata.uid)
  // The former operator would add it again: it stays until the object goes.
  expect((await read('memcached/kept')).metadata.finalizers).toEqual([FORMER, 'fairlead.dev/memcached'])
  await kubectl(['delete', 'memcached/kept', '--wait=false'])
  await until(() => isGone('memcached/kept'))
  await read('configmap/kept-cleaned')
})
