import { resolve } from 'node:path'
import { At } from '#functions/at'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { BIN, fairlead, startFairlead } from '../support/fairlead.ts'
import { playNode } from '../support/node-player.ts'
import { startTestCluster } from '../support/servers.ts'
import { cpuMsOf } from '../support/usage.ts'
import { untilDone } from './ats.ts'
import { countMessagesTo } from './counting-proxy.ts'
import { median } from './median.ts'

/**
 * `node test/bench/burst.ts [Ats] [rounds] [CHECKOUT]`: CPU and messages for each of many Ats that are due at once, in one
 * process; in turn with another checkout of this repository, if one is named. NODE_OPTIONS goes to the measured process.
 */
const ATS = Number(process.argv[2] ?? 500)
const ROUNDS = Number(process.argv[3] ?? 3)
const SIDES = [{ name: 'this', bin: BIN }]
if (process.argv[4] !== undefined) SIDES.unshift({ name: 'other', bin: resolve(process.argv[4], 'cli/bin.js') })
const FUNCTIONS = ['--function', 'functions/at/index.ts']
const NAMESPACE = 'default'
const LEAD_MS = 4000 + 30 * ATS

await using cluster = await startTestCluster({ nats: true })
const url = cluster.nats?.url ?? ''
const env = { KUBECONFIG: cluster.kubeconfig, LOG_LEVEL: 'info', NODE_OPTIONS: process.env['MEASURED_OPTIONS'] ?? '' }
await fairlead(['install', ...FUNCTIONS], { ...env, NATS_URL: url })
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })
const stop = new AbortController()
await playNode(kube, NAMESPACE, stop.signal)

const measured: Record<string, Record<string, number[]>> = {}
for (let round = 0; round < ROUNDS; round++)
  for (const { name, bin } of SIDES) {
    const found = await burst(`${name}-${round}`, bin)
    for (const [what, value] of Object.entries(found)) ((measured[name] ??= {})[what] ??= []).push(value)
    console.log(name, JSON.stringify(found))
  }
stop.abort()
console.table(
  Object.fromEntries(
    Object.entries(measured).map(([name, all]) => [
      name,
      Object.fromEntries(Object.entries(all).map(([what, values]) => [what, median(values).toFixed(2)])),
    ]),
  ),
)
process.exit(0)

async function burst(slug: string, bin: string): Promise<Record<string, number>> {
  const nats = await countMessagesTo(url)
  await using up = startFairlead(['up', ...FUNCTIONS], { ...env, NATS_URL: nats.url }, bin)
  await up.logged(({ msg }) => msg === 'started')
  const totals = () => ({ cpu: cpuMsOf(up.pid), sent: nats.messages(), received: nats.received().messages })
  const before = totals()
  const due = Math.ceil((Date.now() + LEAD_MS) / 1000) * 1000
  const schedule = new Date(due).toISOString()
  const left = new Set(Array.from({ length: ATS }, (_, index) => `${slug}-${index}`))
  const names = left.values()
  const create = async () => {
    for (const name of names)
      await kube.create(
        resourcePath(At, NAMESPACE),
        At.of({ metadata: { name }, spec: { schedule, command: 'echo YAY' } }),
      )
  }
  await Promise.all(Array.from({ length: 4 }, create))
  if (Date.now() > due) throw new Error('the Ats were created too late')
  await untilDone(kube, NAMESPACE, left, stop.signal)
  const seconds = (Date.now() - due) / 1000
  await new Promise((resolve) => setTimeout(resolve, 500))
  const after = totals()
  up.kill('SIGTERM')
  await up.exited
  return {
    'CPU, ms per At': (after.cpu - before.cpu) / ATS,
    'sent per At': (after.sent - before.sent) / ATS,
    'received per At': (after.received - before.received) / ATS,
    'due to DONE, s': seconds,
  }
}
