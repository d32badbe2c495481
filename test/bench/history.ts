import { viewRuns } from '#events'
import { createKubeClient, loadKubeConfig } from '#kube'
import { connectJetStream } from '#nats'
import { fairlead, startFairlead } from '../support/fairlead.ts'
import { playNode } from '../support/node-player.ts'
import { startTestCluster } from '../support/servers.ts'
import { cpuMsOf } from '../support/usage.ts'
import { forget, lives } from './lives.ts'
import { median } from './median.ts'

/** `node test/bench/history.ts [Ats] [rounds]`: what it costs to record runs, as CPU for the life of an At. */
const ATS = Number(process.argv[2] ?? 500)
const ROUNDS = Number(process.argv[3] ?? 4)
/** Runs before the measurement, after which the code is compiled. */
const WARM_UP = 200

await using cluster = await startTestCluster({ nats: true })
const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
await fairlead(['install', '--builtin', 'all'], env)
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })
const stop = new AbortController()
await kube
  .create('/api/v1/namespaces/default/serviceaccounts', { metadata: { name: 'default' } })
  .catch(() => undefined)
await playNode(kube, 'default', stop.signal)
await using js = await connectJetStream({ servers: env.NATS_URL, name: 'bench' })

const KINDS = ['off', 'on'] as const
const cpu: Record<string, number[]> = Object.fromEntries(KINDS.map((kind) => [kind, []]))

for (let round = 0; round < ROUNDS; round++)
  for (const keep of round % 2 === 0 ? KINDS : KINDS.toReversed()) {
    await forget(kube)
    const prefix = `${keep}-${round}`
    await using up = startFairlead(['up', '--builtin', 'all'], { ...env, FAIRLEAD_PREFIX: prefix, FAIRLEAD_RUNS: keep })
    await up.logged(({ msg }) => msg === 'reconciler served')
    await lives(kube, `warm-${prefix}`, WARM_UP)
    const before = { cpu: cpuMsOf(up.pid), ...(await recorded(prefix, keep)) }
    await lives(kube, `at-${prefix}`, ATS)
    const after = { cpu: cpuMsOf(up.pid), ...(await recorded(prefix, keep)) }
    const perAt = (after.cpu - before.cpu) / ATS
    cpu[keep]?.push(perAt)
    console.log({
      round,
      keep,
      'CPU ms per At': perAt.toFixed(2),
      'records per At': ((after.runs - before.runs) / ATS).toFixed(2),
      'bytes per record': ((after.bytes - before.bytes) / Math.max(1, after.runs - before.runs)).toFixed(0),
    })
  }
const base = median(cpu['off'] ?? [])
for (const keep of KINDS) {
  const own = median(cpu[keep] ?? [])
  console.log(`${keep}: ${own.toFixed(2)} ms CPU per At, ${(((own - base) / base) * 100).toFixed(1)} %`)
}
stop.abort()
process.exit(0)

async function recorded(prefix: string, keep: string): Promise<{ runs: number; bytes: number }> {
  if (keep === 'off') return { runs: 0, bytes: 0 }
  let [runs, bytes] = [0, 0]
  for await (const run of viewRuns(js, prefix).list({})) {
    runs++
    bytes += run.bytes
  }
  return { runs, bytes }
}
