import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import { ConfigMap } from '#sdk'
import { fairlead } from '../../support/fairlead.ts'
import { startTestCluster } from '../../support/servers.ts'
import { createOtherPods } from '../other-pods.ts'
import { NAMESPACE } from './edits.ts'
import { type Operator, writeFunctions } from './functions.ts'
import type { Place } from './sides.ts'

const OTHERS = 'others'
const AT_ONCE = 16
const NODES = { group: '', version: 'v1', resource: 'nodes' }

/** An API server where the functions are installed, with so many pods of others, and ConfigMaps and Nodes beside them. */
export async function openPlace(operators: readonly Operator[], others: number) {
  await using stack = new AsyncDisposableStack()
  const dir = await mkdtemp(join(tmpdir(), 'fleet-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  const cluster = stack.use(await startTestCluster())
  const { kubeconfig } = cluster
  let requests = 0
  const kube = stack.use(
    createKubeClient({
      ...(await loadKubeConfig({ paths: [kubeconfig] })),
      userAgent: 'bench',
      maxSockets: 64,
      onRequest: () => void requests++,
    }),
  )
  const module = join(dir, 'functions.ts')
  await writeFunctions(module, operators.length)
  const installed = await fairlead(['install', '--function', module], { KUBECONFIG: kubeconfig })
  if (installed.code !== 0) throw new Error(`fairlead install: ${installed.stderr}`)
  await createOthers(kube, others)
  const all = stack.move()
  const place: Place = { kube, kubeconfig, module, operators }
  return {
    ...place,
    apiServer: () => cluster.processes.get('kube-apiserver')?.pid ?? 0,
    /** Those of the client of this place, so far. */
    requests: () => requests,
    [Symbol.asyncDispose]: () => all[Symbol.asyncDispose](),
  }
}

async function createOthers(kube: KubeClient, others: number): Promise<void> {
  for (const namespace of [NAMESPACE, OTHERS]) {
    await kube.create('/api/v1/namespaces', { metadata: { name: namespace } })
    await kube.create(`/api/v1/namespaces/${namespace}/serviceaccounts`, { metadata: { name: 'default' } })
  }
  await createOtherPods(kube, OTHERS, 0, others)
  const numbers = (count: number) => Array.from({ length: count }, (_, index) => index)
  await forEachAtMost(AT_ONCE, numbers(Math.ceil(others * 0.4)), async (index) => {
    await kube.create(resourcePath(ConfigMap, OTHERS), { metadata: { name: `other-${index}` }, data: { a: 'b' } })
  })
  await forEachAtMost(AT_ONCE, numbers(Math.ceil(others * 0.04)), async (index) => {
    await kube.create(resourcePath(NODES), { metadata: { name: `other-${index}` } })
  })
}
