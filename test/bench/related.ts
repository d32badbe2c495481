import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Memcached, memcached } from '#functions/memcached'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { etcdOf } from '../support/cluster-etcd.ts'
import { fairlead, startFairlead } from '../support/fairlead.ts'
import { startTestCluster } from '../support/servers.ts'
import { cpuMsOf, residentMiBOf } from '../support/usage.ts'
import { countMessagesTo } from './counting-proxy.ts'
import { Edits } from './edits.ts'
import { percentiles } from './median.ts'
import { createOtherPods, deleteOtherPods, fillWithPods } from './other-pods.ts'

/**
 * `node test/bench/related.ts [--pods COUNT] [--within Cluster] [--base CHECKOUT]`: an edit of a Memcached, whose related
 * pods are selected by their labels, while other pods are in its namespace, and after half of these were deleted.
 * `--within Cluster`: it reads the pods of all namespaces. `--base`: beside another checkout, in turn.
 */
const NAMESPACE = 'default'
const EDITS = 100
const WARM_EDITS = 30
/** Until a process that was just started has listed all pods. */
const LONGEST_START_MS = 180_000
const NAMESPACES = 100
const { base, pods, within } = parseArgs({
  options: {
    base: { type: 'string' },
    pods: { type: 'string', default: '20000' },
    within: { type: 'string', default: 'Namespace' },
  },
}).values
const isOfCluster = within === 'Cluster'
const most = Number(pods)
const here = fileURLToPath(new URL('../..', import.meta.url))
const checkouts = { ...(base !== undefined && { base }), here }
const MEMCACHED = isOfCluster ? 'test/bench/memcached-cluster.ts' : 'functions/memcached/index.ts'
const functionsOf = (checkout: string) =>
  ['functions/at/index.ts', MEMCACHED].flatMap((file) => ['--function', join(checkout, file)])

await using cluster = await startTestCluster({ nats: true })
const env = { KUBECONFIG: cluster.kubeconfig, LOG_LEVEL: 'info' }
await fairlead(['install', ...functionsOf(here)], env)
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })
await kube.create(
  resourcePath(memcached.for, NAMESPACE),
  Memcached.of({ metadata: { name: 'bench' }, spec: { size: 1, image: 'memcached:1.6' } }),
)
const rows: Record<string, Record<string, string>> = {}
const edits = new Edits(kube, { namespace: NAMESPACE, name: 'bench' })

await measure('no other pods')
if (isOfCluster) await amongPodsOfTheCluster()
else await amongPodsOfTheNamespace()
console.table(rows)
process.exit(0)

async function amongPodsOfTheNamespace(): Promise<void> {
  await createOtherPods(kube, NAMESPACE, 0, most / 4)
  await measure(`${most / 4} other pods`)
  await createOtherPods(kube, NAMESPACE, most / 4, most)
  await measure(`${most} other pods`)
  await deleteOtherPods(kube, NAMESPACE, 0, most / 2)
  await measure(`${most / 2} of them deleted`)
}

async function amongPodsOfTheCluster(): Promise<void> {
  const namespaces = Array.from({ length: NAMESPACES }, (_, number) => `other-${number}`)
  for (const name of namespaces) await kube.create('/api/v1/namespaces', { metadata: { name } })
  await fillWithPods(await etcdOf(cluster.dir), namespaces, most)
  await measure(`${most} other pods in ${NAMESPACES} namespaces`)
}

async function measure(scene: string): Promise<void> {
  for (const [label, checkout] of Object.entries(checkouts)) {
    const nats = await countMessagesTo(cluster.nats?.url ?? '')
    const up = startFairlead(
      ['up', ...functionsOf(checkout)],
      { ...env, NATS_URL: nats.url, FAIRLEAD_PREFIX: label },
      join(checkout, 'cli/bin.js'),
    )
    await edits.times(WARM_EDITS, LONGEST_START_MS).catch(() => [])
    const before = { cpu: cpuMsOf(up.pid), sent: nats.messages(), ...nats.received() }
    const times = await edits.times(EDITS).catch(() => [Number.POSITIVE_INFINITY])
    const { messages, bytes } = nats.received()
    const per = (total: number) => (total / EDITS).toFixed(1)
    rows[`${scene}, ${label}`] = {
      'p50 / p99, ms': percentiles(times),
      'CPU, ms': per(cpuMsOf(up.pid) - before.cpu),
      sent: per(nats.messages() - before.sent),
      received: per(messages - before.messages),
      'KiB received': per((bytes - before.bytes) / 1024),
      'RSS, MiB': residentMiBOf(up.pid).toFixed(0),
    }
    console.table(rows)
    up.kill('SIGTERM')
    await up.exited
  }
}
