import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { connectJetStream } from '#nats'
import { RECONCILERS } from '#spec'
import { fairlead, startFairlead } from '../support/fairlead.ts'
import { startTestCluster } from '../support/servers.ts'
import { Arrivals, HOT_NAMESPACE, steadyChanges, throughApiServer, throughEtcd, timed } from './bridge-changes.ts'
import { CONFIG_MAPS, configMapsIn, cpuOf, memoryOf, reconcile } from './bridge-support.ts'
import { median, percentiles } from './median.ts'

/**
 * `npm run soak bridge -- [--minutes 10] [--rate 1000] [--objects 1000] [--through etcd|api]`: does the bridge keep up
 * with so many changes a second, on a real API server and nats-server? Exit code 0: all of them have arrived, and the
 * last ones as soon as the first ones.
 */
const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    rate: { type: 'string', default: '1000' },
    objects: { type: 'string', default: '1000' },
    through: { type: 'string', default: 'etcd' },
  },
})
const OBJECTS = Number(values.objects)
const RATE = Number(values.rate)
const SECONDS = Math.round(Number(values.minutes) * 60)
const WINDOW_SECONDS = Math.max(1, Math.min(10, Math.floor(SECONDS / 12)))
const ARRIVE_WITHIN_MS = 30_000
/** The tolerance for load of the machine. */
const TOLERATED_MS = 20

await using cluster = await startTestCluster({ nats: true })
const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'debug' }
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'soak' })
await fairlead(['install', '--builtin', 'all'], env)
await kube.delete(resourcePath(RECONCILERS, undefined, 'at'))
await kube.create('/api/v1/namespaces', { metadata: { name: HOT_NAMESPACE } })
await reconcile(kube, 'maps', CONFIG_MAPS)
await using js = await connectJetStream({ servers: env.NATS_URL, name: 'soak' })
await using bridge = startFairlead(['bridge'], env)
await bridge.logged(({ msg, resource }) => msg === 'listed' && resource === 'configmaps.v1')
await using arrivals = new Arrivals(js)

const way = values.through === 'api' ? throughApiServer(kube) : throughEtcd(await configMapsIn(cluster.dir))
const { change, takeAnswers, delaysAfter } = timed(way)
const medians: number[] = []
let second = 0
let sent = 0
let before = { sent: 0, cpu: cpuOf(bridge.pid) }
for await (sent of steadyChanges(change, { rate: RATE, seconds: SECONDS, objects: OBJECTS })) {
  if (++second % WINDOW_SECONDS !== 0) continue
  const delays = delaysAfter(arrivals.take())
  const now = { sent, cpu: cpuOf(bridge.pid) }
  const perSecond = (count: number) => (count / WINDOW_SECONDS).toFixed(0)
  console.log(
    `${second} s: ${perSecond(now.sent - before.sent)} changes/s, ${perSecond(delays.length)} arrived; ` +
      `taken after ${percentiles(takeAnswers())} ms (p50 / p99), in the stream ${percentiles(delays)} ms later; ` +
      `bridge ${perSecond((now.cpu - before.cpu) * 100)} % of a core, ${memoryOf(bridge.pid).now} MiB`,
  )
  medians.push(median(delays))
  before = now
}

const ended = performance.now()
while (arrivals.count < sent && performance.now() < ended + ARRIVE_WITHIN_MS) await sleep(50)
const lateMs = performance.now() - ended
const third = Math.ceil(medians.length / 3)
const [first, last] = [median(medians.slice(0, third)), median(medians.slice(-third))]
const wrong = [
  ...(arrivals.count < sent ? [`${sent - arrivals.count} of ${sent} changes have not arrived`] : []),
  ...(last > 2 * first + TOLERATED_MS ? ['the delay grows'] : []),
]
console.log(
  `${(sent / SECONDS).toFixed(0)} changes/s through ${values.through} for ${SECONDS} s (${RATE} were asked for), ${arrivals.count} of ${sent} ` +
    `in the stream, the last ${lateMs.toFixed(0)} ms after the end; median delay of the stream ${first.toFixed(1)} ms in the first third, ${last.toFixed(1)} ms in the last`,
)
console.log(wrong.length === 0 ? 'The bridge keeps up.' : `NOT GOOD: ${wrong.join('; ')}`)
process.exitCode = wrong.length === 0 ? 0 : 1
