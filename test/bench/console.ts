import { createKubeClient, loadKubeConfig } from '#kube'
import { type FairleadProcess, fairlead, startFairlead } from '../support/fairlead.ts'
import { playNode } from '../support/node-player.ts'
import { startTestCluster } from '../support/servers.ts'
import { cpuMsOf, residentMiBOf } from '../support/usage.ts'
import { until } from '../support/wait.ts'
import { forget, lives } from './lives.ts'
import { median } from './median.ts'
import { requestsTo } from './requests.ts'

/** `node test/bench/console.ts [Ats] [rounds]`: what runs cost while the console has 20 tabs open, and what they cost without it. */
const ATS = Number(process.argv[2] ?? 300)
const ROUNDS = Number(process.argv[3] ?? 3)
/** The code of a new process is compiled by then. */
const WARM_UP = 200
const TABS = 20
const PAGES = ['/', '/queue', '/runs', '/events', '/objects/at/default/']

await using cluster = await startTestCluster({ nats: true })
const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
await fairlead(['install', '--builtin', 'all'], env)
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })
const stop = new AbortController()
await kube
  .create('/api/v1/namespaces/default/serviceaccounts', { metadata: { name: 'default' } })
  .catch(() => undefined)
await playNode(kube, 'default', stop.signal)

const found: Record<'without' | 'with', number[]> = { without: [], with: [] }
for (let round = 0; round < ROUNDS; round++)
  for (const how of round % 2 === 0 ? (['without', 'with'] as const) : (['with', 'without'] as const)) {
    await forget(kube)
    const prefix = `${how}-${round}`
    const own = { ...env, FAIRLEAD_PREFIX: prefix }
    await using up = startFairlead(['up', '--builtin', 'all'], own)
    await up.logged(({ msg }) => msg === 'reconciler served')
    await lives(kube, `warm-${prefix}`, WARM_UP)
    const tabs = how === 'with' ? await openConsole(own, `at-${prefix}-0`) : undefined
    const before = { ...(await counts()), cpu: cpuMsOf(up.pid), at: performance.now() }
    await lives(kube, `at-${prefix}`, ATS)
    const after = { ...(await counts()), cpu: cpuMsOf(up.pid), at: performance.now() }
    const seconds = (after.at - before.at) / 1000
    found[how].push((after.cpu - before.cpu) / ATS)
    console.log({
      round,
      console: how,
      'CPU ms per At': ((after.cpu - before.cpu) / ATS).toFixed(2),
      'messages to NATS per s': ((after.messages - before.messages) / seconds).toFixed(0),
      'API requests per s': ((after.requests - before.requests) / seconds).toFixed(0),
      's until all are DONE': seconds.toFixed(1),
      ...tabs?.report(seconds),
    })
    await tabs?.close()
  }
const [without, beside] = [median(found.without), median(found.with)]
console.log(
  `${without.toFixed(2)} ms CPU per At without the console, ${beside.toFixed(2)} ms with it, ${(((beside - without) / without) * 100).toFixed(1)} %`,
)
stop.abort()
process.exit(0)

/** Tabs that follow all pages. */
async function openConsole(own: Record<string, string>, name: string) {
  const started: FairleadProcess = startFairlead(['console', '--no-open'], own)
  const addresses = () => started.output.flatMap((line) => /http:\S+/.exec(line)?.[0] ?? [])
  await until(() => addresses().length > 0)
  const address = new URL(addresses()[0] ?? '')
  const authorization = `Bearer ${address.searchParams.get('token')}`
  const end = new AbortController()
  let heard = 0
  const follow = async (page: string): Promise<void> => {
    const url = new URL(`/live?page=${encodeURIComponent(page)}`, address)
    const { body } = await fetch(url, { headers: { authorization }, signal: end.signal })
    for await (const _ of body ?? []) heard++
  }
  for (let tab = 0; tab < TABS; tab++) {
    const page = PAGES[tab % PAGES.length] ?? '/'
    follow(page.endsWith('default/') ? page + name : page).catch(() => undefined)
  }
  const cpu = cpuMsOf(started.pid)
  return {
    report: (seconds: number) => ({
      'CPU of the console, %': ((cpuMsOf(started.pid) - cpu) / seconds / 10).toFixed(1),
      'RSS of the console, MiB': residentMiBOf(started.pid).toFixed(0),
      'messages to tabs per s': (heard / seconds).toFixed(0),
    }),
    async close() {
      end.abort()
      await started[Symbol.asyncDispose]()
    },
  }
}

async function counts(): Promise<{ messages: number; requests: number }> {
  const answer = await fetch(`${cluster.nats?.monitoringUrls[0]}/varz`)
  return { messages: ((await answer.json()) as { in_msgs: number }).in_msgs, requests: await requestsTo(kube) }
}
