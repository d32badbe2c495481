import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { builtins } from '#functions'
import { install } from '#install'
import { createKubeClient, loadKubeConfig } from '#kube'
import { startTestCluster, startTestNats } from '../support/servers.ts'
import { cpuMsOf, residentMiBOf } from '../support/usage.ts'

/**
 * `npm run bench clusters`: what many clusters cost while nothing happens. One process has a runtime with streams of its own
 * for each cluster, and three Reconcilers in each. All clusters are one API server here: it is left out of the figures.
 */
const FUNCTIONS = ['at', 'memcached', 'visitors']
/** The start leaves garbage, which is collected by then. */
const SETTLES_MS = 30_000
const MEASURED_MS = 30_000

const { clusters, replicas } = parseArgs({
  options: {
    clusters: { type: 'string', default: '1,10,50,100' },
    replicas: { type: 'string', default: '1,3' },
  },
}).values
const rows: Record<string, Record<string, string>> = {}
for (const copies of replicas.split(',').map((text) => (text === '3' ? 3 : 1)))
  for (const count of clusters.split(',').map(Number)) {
    rows[`${count} clusters, R${copies}`] = await measured(count, copies)
    console.table(rows)
  }
process.exit(0)

async function measured(clusters: number, replicas: 1 | 3): Promise<Record<string, string>> {
  await using cluster = await startTestCluster()
  await using nats = await startTestNats({ replicas })
  const access = await loadKubeConfig({ paths: [cluster.kubeconfig] })
  await using kube = createKubeClient({ ...access, userAgent: 'bench' })
  await install(kube, await builtins(FUNCTIONS))
  const servers = nats.names.map((name) => nats.processes.get(name)?.pid ?? 0)
  const empty = { mib: each(servers, residentMiBOf), handles: each(servers, handlesOf) }
  const beganAt = performance.now()
  const child = fork(fileURLToPath(new URL('./clusters-process.ts', import.meta.url)), [`${clusters}`, ...FUNCTIONS], {
    env: {
      ...process.env,
      KUBECONFIG: cluster.kubeconfig,
      NATS_URL: nats.url,
      FAIRLEAD_REPLICAS: `${replicas}`,
      LOG_LEVEL: 'error',
    },
  })
  const pid = child.pid ?? 0
  try {
    await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(([code]) => {
        throw new Error(`the process has ended with ${code}`)
      }),
    ])
    const startedS = (performance.now() - beganAt) / 1000
    await sleep(SETTLES_MS)
    const before = { nats: each(servers, cpuMsOf), own: cpuMsOf(pid), at: performance.now() }
    await sleep(MEASURED_MS)
    const shareOf = (ms: number) => `${((100 * ms) / (performance.now() - before.at)).toFixed(1)} %`
    return {
      'until all serve, s': startedS.toFixed(0),
      'nats-server: memory, MiB': `${empty.mib.toFixed(0)} + ${(each(servers, residentMiBOf) - empty.mib).toFixed(0)}`,
      'of a core': shareOf(each(servers, cpuMsOf) - before.nats),
      'file handles': `${empty.handles} + ${each(servers, handlesOf) - empty.handles}`,
      'process: memory, MiB': residentMiBOf(pid).toFixed(0),
      'its share of a core': shareOf(cpuMsOf(pid) - before.own),
    }
  } finally {
    child.kill('SIGKILL')
  }
}

/** Returns the mean of the servers. */
function each(pids: readonly number[], of: (pid: number) => number): number {
  return Math.round(pids.reduce((sum, pid) => sum + of(pid), 0) / pids.length)
}

function handlesOf(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length
}
