import { mkdtempSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { At } from '#functions/at'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { Deployment } from '#sdk'
import { fairlead, startFairlead } from '../support/fairlead.ts'
import { playNode } from '../support/node-player.ts'
import { startTestCluster } from '../support/servers.ts'
import { cpuMsOf } from '../support/usage.ts'
import { countMessagesTo } from './counting-proxy.ts'
import { Memcached, memcached } from './memcached.ts'

/**
 * `node test/bench/calls.ts`: calls of the function, API requests, CPU and messages to and from NATS for an At from its
 * creation to DONE, and for an edit, with the function in the dispatcher's process and over HTTP; then the messages by what
 * they are. `calls.ts apart`: bridge and dispatcher in processes of their own, the function with the dispatcher.
 */
const IS_APART = process.argv[2] === 'apart'
const COUNT = 100
const FUNCTIONS = ['--function', 'test/bench/counted.ts']
const NAMESPACE = 'default'
const RECONCILERS = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'reconcilers' }
const QUIET_MS = 1500
/** Not counted: watches, Reconcilers, and what the API server does for itself. */
const COUNTED =
  /^apiserver_request_total\{(?=.*\bresource="(?:ats|pods|memcacheds|deployments|events)")(?!.*\bverb="WATCH")[^}]*\} (\S+)$/gm

const calls = join(mkdtempSync(join(tmpdir(), 'fairlead-calls-')), 'calls')
writeFileSync(calls, '')
await using cluster = await startTestCluster({ nats: true })
const PARTS = IS_APART ? ['bridge', 'dispatch'] : ['up']
const parts = await Promise.all(
  PARTS.map(async (part) => ({ part, nats: await countMessagesTo(cluster.nats?.url ?? ''), pid: 0 })),
)
const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info', BENCH_CALLS: calls }
await fairlead(['install', ...FUNCTIONS], env)
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })
const stop = new AbortController()
await playNode(kube, NAMESPACE, stop.signal)
await using processes = new AsyncDisposableStack()
for (const one of parts) {
  const args = one.part === 'bridge' ? [one.part] : [one.part, ...FUNCTIONS]
  const started = processes.use(startFairlead(args, { ...env, NATS_URL: one.nats.url }))
  one.pid = started.pid
  await started.logged(({ msg }) => msg === 'started')
}

const rows: Record<string, Record<string, string>> = {}
const kinds: { of: string; part: string; message: string; sent: string; received: string }[] = []
await measure('in process')
if (IS_APART) finish()
const ports = { at: 18_811, memcached: 18_812 }
for (const [name, port] of Object.entries(ports)) {
  const server = startFairlead(['serve', name, ...FUNCTIONS, '--port', String(port)], env)
  await server.logged(({ msg }) => /listen|serv/i.test(msg))
  const invoke = { http: { url: `http://127.0.0.1:${port}` } }
  await kube.patch(resourcePath(RECONCILERS, undefined, name), { spec: { invoke } }, 'merge')
}
await calm()
await measure('over HTTP')
finish()

function finish(): never {
  stop.abort()
  console.table(rows)
  console.table(kinds)
  process.exit(0)
}

async function measure(where: string): Promise<void> {
  const slug = where.replaceAll(' ', '-').toLowerCase()
  await calm()
  const name = (what: string) => `${what}, ${where}`
  rows[name('an At')] = await counting(name('an At'), () => ats(slug))
  await kube.create(
    resourcePath(memcached.for, NAMESPACE),
    Memcached.of({ metadata: { name: slug }, spec: { size: 0 } }),
  )
  await calm()
  rows[name('an edit')] = await counting(name('an edit'), () => edits(slug))
}

/** Per object. The bench's own requests: it creates the At and ends its pod; it makes the edit. */
async function counting(of: string, act: () => Promise<number>): Promise<Record<string, string>> {
  const before = await totals()
  const own = await act()
  await calm()
  const after = await totals()
  const per = (one: number, other: number) => ((other - one) / COUNT).toFixed(2)
  for (const [index, { part }] of parts.entries())
    for (const [message, now] of [...(after.kinds[index] ?? [])].sort(([one], [other]) => one.localeCompare(other))) {
      const { sent, received } = before.kinds[index]?.get(message) ?? { sent: 0, received: 0 }
      const row = { of, part, message, sent: per(sent, now.sent), received: per(received, now.received) }
      if (Number(row.sent) + Number(row.received) >= 0.05) kinds.push(row)
    }
  return {
    calls: per(before.calls, after.calls),
    'API requests': per(before.requests + own, after.requests),
    'messages to NATS': per(before.messages, after.messages),
    'messages from NATS': per(before.received, after.received),
    'CPU, ms': per(before.cpu, after.cpu),
  }
}

async function totals() {
  const metrics = await kube.text('/metrics')
  const requests = [...metrics.matchAll(COUNTED)].reduce((sum, [, count]) => sum + Number(count), 0)
  const sum = (of: (part: (typeof parts)[number]) => number) => parts.reduce((total, part) => total + of(part), 0)
  return {
    calls: statSync(calls).size,
    requests,
    messages: sum(({ nats }) => nats.messages()),
    received: sum(({ nats }) => nats.received().messages),
    cpu: sum(({ pid }) => cpuMsOf(pid)),
    kinds: parts.map(({ nats }) => nats.kinds()),
  }
}

async function ats(slug: string): Promise<number> {
  const schedule = new Date(Date.now() + 5000).toISOString().replace(/\.\d+/, '')
  const left = new Set(Array.from({ length: COUNT }, (_, index) => `${slug}-${index}`))
  const ended = new AbortController()
  const changes = kube.watch<KubeObject & { status?: { phase?: string } }>(resourcePath(At, NAMESPACE), {
    signal: ended.signal,
  })
  for (const name of left)
    await kube.create(
      resourcePath(At, NAMESPACE),
      At.of({ metadata: { name }, spec: { schedule, command: 'echo YAY' } }),
    )
  for await (const { type, object } of changes) {
    if (type !== 'BOOKMARK' && object.status?.phase === 'DONE') left.delete(object.metadata.name)
    if (left.size === 0) break
  }
  ended.abort()
  // It creates the At, and ends its pod.
  return 2 * COUNT
}

/** Far enough apart that no two fall into one run. */
async function edits(slug: string): Promise<number> {
  for (let size = 1; size <= COUNT; size++) {
    await kube.patch(resourcePath(memcached.for, NAMESPACE, slug), { spec: { size } }, 'merge')
    await sleep(100)
  }
  const { spec } = await kube.get<KubeObject & { spec: { replicas: number } }>(
    resourcePath(Deployment, NAMESPACE, slug),
  )
  if (spec.replicas !== COUNT) throw new Error(`the Deployment has ${spec.replicas} replicas instead of ${COUNT}`)
  return COUNT + 1
}

/** Until nothing has been sent to NATS for some time but what an idle process sends. */
async function calm(): Promise<void> {
  for (let before = -1; ; ) {
    const now = statSync(calls).size
    if (now === before) return
    before = now
    await sleep(QUIET_MS)
  }
}
