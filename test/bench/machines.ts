import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { At } from '#functions/at'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { createCgroup, readCgroupLayout, removeCgroup } from '../../packages/lab/node/cgroups.ts'
import { type FairleadProcess, fairlead, startFairlead } from '../support/fairlead.ts'
import { playNode } from '../support/node-player.ts'
import { startTestCluster } from '../support/servers.ts'
import { cpuMsOf } from '../support/usage.ts'
import { untilDone } from './ats.ts'

/**
 * `npm run bench machines`: dispatchers as if on several machines. Each has a cgroup that gives it the same part of a core,
 * so servers, bridge and load do not compete with them, and there is no network between. Many Ats become due at one second;
 * measured is the time until all are DONE, with more and more dispatchers. Needs root.
 */
const options = parseArgs({
  options: {
    ats: { type: 'string', default: '400' },
    share: { type: 'string', default: '0.15' },
    dispatchers: { type: 'string', default: '1,2,4' },
    rounds: { type: 'string', default: '3' },
  },
}).values
const ats = Number(options.ats)
const share = Number(options.share)
const rounds = Number(options.rounds)
const counts = options.dispatchers.split(',').map(Number)
const FUNCTIONS = ['--function', 'functions/at/index.ts']
const NAMESPACE = 'default'
const PERIOD_US = 100_000
/** For the creation of each At, which each dispatcher sees and sets a timer for. */
const LEAD_MS_FOR_EACH = 60

await using cluster = await startTestCluster({ nats: true })
const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
await fairlead(['install', ...FUNCTIONS], env)
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })
const stop = new AbortController()
await playNode(kube, NAMESPACE, stop.signal)
await using bridge = startFairlead(['bridge'], env)
await bridge.logged(({ msg }) => msg === 'started')

const rows: Record<string, Record<string, string>> = {}
for (let round = 1; round <= rounds; round++)
  for (const count of counts) {
    rows[`${count} × ${share} of a core, round ${round}`] = await burst(count, `b${count}-${round}`)
    console.table(rows)
  }
stop.abort()
process.exit(0)

async function burst(count: number, slug: string): Promise<Record<string, string>> {
  const groups = Array.from({ length: count }, (_, index) => `fairlead-bench-${process.pid}-${index}`)
  const dispatchers: FairleadProcess[] = []
  try {
    for (const group of groups) {
      const dispatcher = startFairlead(['dispatch', ...FUNCTIONS], env)
      dispatchers.push(dispatcher)
      await dispatcher.logged(({ msg }) => msg === 'started')
      await limit(dispatcher.pid, group)
    }
    const due = Math.ceil((Date.now() + 4000 + LEAD_MS_FOR_EACH * ats) / 1000) * 1000
    const left = new Set(Array.from({ length: ats }, (_, index) => `${slug}-${index}`))
    const done = untilDone(kube, NAMESPACE, left, stop.signal)
    for (const name of left)
      await kube.create(
        resourcePath(At, NAMESPACE),
        At.of({ metadata: { name }, spec: { schedule: new Date(due).toISOString(), command: 'echo YAY' } }),
      )
    await new Promise((resolve) => setTimeout(resolve, due - Date.now()))
    if (Date.now() > due + 1000) throw new Error(`${ats} Ats were created too late: give fewer --ats`)
    const cpu = () => dispatchers.map(({ pid }) => cpuMsOf(pid))
    const before = cpu()
    await done
    const seconds = (Date.now() - due) / 1000
    const used = cpu().map((ms, index) => Math.round(ms - (before[index] ?? 0)))
    return {
      'due to DONE, s': seconds.toFixed(1),
      'Ats a second': (ats / seconds).toFixed(1),
      'CPU of each dispatcher, ms': used.join(', '),
    }
  } finally {
    for (const dispatcher of dispatchers) await dispatcher[Symbol.asyncDispose]()
    for (const group of groups) await removeCgroup(group)
  }
}

/** Gives the process that part of a core. */
async function limit(pid: number, group: string): Promise<void> {
  const { problem, trees, version } = await readCgroupLayout()
  if (problem !== undefined) throw new Error(`the bench needs ${problem}`)
  await createCgroup(group)
  const quota = Math.round(share * PERIOD_US)
  const file = version === 1 ? 'cpu.cfs_quota_us' : 'cpu.max'
  for (const path of trees.map((tree) => join(tree, group)))
    if (existsSync(join(path, file))) {
      await writeFile(join(path, file), version === 1 ? String(quota) : `${quota} ${PERIOD_US}`)
      await writeFile(join(path, 'cgroup.procs'), String(pid))
    }
}
