import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { stringify } from 'yaml'
import type { JetStream } from '#nats'
import { clusterId } from '../../cli/process/kube.ts'
import { changedKubeConfig, type Site, startSites } from '../e2e/clusters-world.ts'
import { startCollector } from '../support/collector.ts'
import { command } from '../support/command.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { connectTo } from '../support/jetstream.ts'
import { until } from '../support/wait.ts'
import { createPlace, statusOfPlace } from './places.ts'

const MODULE = fileURLToPath(new URL('clusters-function.ts', import.meta.url))
const STREAMS = ['EVENTS', 'DEAD', 'RUNS', 'USAGE', 'WORK']

let sites: Awaited<ReturnType<typeof startSites<'main' | 'edge'>>>
let js: JetStream
/** The file that the process has, and one for commands, whose API servers do not answer. */
let env: Record<'FAIRLEAD_CLUSTERS' | 'NATS_URL', string>

beforeAll(async () => {
  sites = await startSites(['main', 'edge'])
  js = await connectTo(sites.nats.url)
  const away = await changedKubeConfig(sites.site('edge').cluster.kubeconfig, join(sites.dir, 'away'), {
    server: 'https://127.0.0.1:1',
  })
  const file = join(sites.dir, 'for-commands.yaml')
  await writeFile(
    file,
    stringify({
      clusters: [
        { name: 'main', kubeconfig: away, prefix: '' },
        { name: 'edge', kubeconfig: away },
        { name: 'never', kubeconfig: away },
      ],
    }),
  )
  env = { FAIRLEAD_CLUSTERS: file, NATS_URL: sites.nats.url }
})
afterAll(async () => {
  await js?.close()
  await sites?.[Symbol.asyncDispose]()
})

const listed = () => [
  { name: 'main', kubeconfig: sites.site('main').cluster.kubeconfig, prefix: '' },
  { name: 'edge', kubeconfig: sites.site('edge').cluster.kubeconfig, labels: { tier: 'edge' } },
]
const started = (args: string[], more: Record<string, string> = {}) =>
  startFairlead(['up', '--install', '-f', MODULE, ...args], {
    NATS_URL: sites.nats.url,
    FAIRLEAD_LEASE_SECONDS: '3',
    ...more,
  })

const create = ({ kube }: Site, name: string) => createPlace(kube, name)
const statusOf = ({ kube }: Site, name: string) => statusOfPlace(kube, name)

const runsOf = ({ logs }: FairleadProcess, cluster: string) =>
  logs.flatMap((line) => (line['cluster'] === cluster && line.step === 'started' ? [line.key] : []))

/** What a stream that is made anew or rewritten would not keep. */
async function lifeOf(prefix: string) {
  const all = STREAMS.map(async (stream) => {
    const { created, config } = await js.admin.streams.info(`${prefix}${stream}`)
    return { created, config }
  })
  const event = await js.admin.streams.getMessage('EVENTS', { last_by_subj: 'k8s.*.*.places.*.*.before' })
  return { streams: await Promise.all(all), event: event && { seq: event.seq, time: event.timestamp } }
}

const json = async (...args: string[]) => {
  const { stdout, code } = await command([...args, '-o', 'json'], env)
  return { code, found: JSON.parse(stdout) }
}

describe('an existing installation', () => {
  it('becomes the first cluster of a file: no stream is made anew or rewritten, and no key runs', async () => {
    const main = sites.site('main')
    {
      await using alone = started(['--kubeconfig', main.cluster.kubeconfig])
      await alone.logged(({ msg }) => msg === 'started')
      await create(main, 'before')
      expect(await statusOf(main, 'before')).toMatchObject({ cluster: '', tier: '' })
      await until(() => alone.logs.some(({ step, key }) => step === 'ended' && key === 'default/before'))
      alone.kill('SIGTERM')
      expect((await alone.exited).code).toBe(0)
    }
    const life = await lifeOf('')
    await sites.list(listed())
    await using up = started(['--clusters', sites.file])
    for (const name of ['main', 'edge'])
      await up.logged(({ msg, cluster, state }) => msg === 'cluster' && cluster === name && state === 'Up')
    // What would run because of the start is queued before an object that is created after it.
    await create(main, 'after')
    expect(await statusOf(main, 'after')).toMatchObject({ cluster: 'main' })
    await until(async () => {
      const { found } = await json('queue', 'ls', '--cluster', 'main')
      return found.every(({ state }: { state: string }) => state === 'waiting')
    })
    expect(runsOf(up, 'main')).toEqual(['default/after'])
    expect(await lifeOf('')).toEqual(life)
  })
})

describe('up --cluster NAME', () => {
  it('serves only this one of the file, and its functions read the same about it', async () => {
    await sites.list(listed())
    await using up = started(['--clusters', sites.file, '--cluster', 'edge'])
    await up.logged(({ msg, cluster, state }) => msg === 'cluster' && cluster === 'edge' && state === 'Up')
    await create(sites.site('edge'), 'alone')
    expect(await statusOf(sites.site('edge'), 'alone')).toMatchObject({ cluster: 'edge', tier: 'edge' })
    expect(up.logs.filter(({ cluster }) => cluster === 'main')).toEqual([])
  })
})

describe('with a process that serves two clusters', () => {
  let up: FairleadProcess
  let collector: Awaited<ReturnType<typeof startCollector>>
  beforeAll(async () => {
    await sites.list(listed())
    collector = await startCollector()
    up = started(['--clusters', sites.file], { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url })
    await up.logged(({ msg, cluster, state }) => msg === 'cluster' && cluster === 'edge' && state === 'Up')
    await create(sites.site('edge'), 'far')
    await statusOf(sites.site('edge'), 'far')
  })
  afterAll(async () => {
    await up?.[Symbol.asyncDispose]()
    await collector?.[Symbol.asyncDispose]()
  })

  const waiting = (name: string) => expect.objectContaining({ name, state: 'waiting' })

  it('--cluster chooses one of the file, before and after the command', async () => {
    for (const args of [
      ['--cluster', 'edge', 'queue', 'ls'],
      ['queue', 'ls', '--cluster', 'edge'],
    ])
      expect(await json(...args)).toEqual({ code: 0, found: expect.arrayContaining([waiting('far')]) })
    expect(await command(['queue', 'ls'], env)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('choose one with --cluster NAME; it has main, edge, never'),
    })
    expect(await command(['queue', 'ls', '--cluster', 'west'], env)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has no cluster west; it has main, edge, never'),
    })
  })

  it('--all-clusters lists each cluster under its name, also without an answer of API servers', async () => {
    const { code, found } = await json('queue', 'ls', '--all-clusters')
    expect(found).toEqual({
      main: expect.arrayContaining([waiting('before'), waiting('after')]),
      edge: expect.arrayContaining([waiting('far')]),
      never: { failure: expect.stringContaining('never_WORK') },
    })
    // Scripts see that one list is missing.
    expect(code).toBe(1)
    const { stdout } = await command(['queue', 'ls', '--all-clusters'], env)
    expect(stdout).toMatch(/^cluster main\n[^]*\n\ncluster edge\n[^]*far[^]*\n\ncluster never\n.*never_WORK/)
    const runs = await json('runs', 'ls', '--all-clusters')
    expect(runs.found.edge).toContainEqual(expect.objectContaining({ name: 'far' }))
    expect(runs.found.main).toHaveLength(2)
    expect((await json('dead', 'ls', '--all-clusters')).found).toMatchObject({ main: [], edge: [] })
  })

  it('a run has its cluster as input, its record keeps it, and a replay gives it again', async () => {
    const edge = sites.site('edge')
    const cluster = { name: 'edge', id: await clusterId(edge.kube), labels: { tier: 'edge' } }
    expect(await statusOf(edge, 'far')).toMatchObject({ cluster: 'edge', id: cluster.id, tier: 'edge' })
    const [{ run: id }] = (await json('--cluster', 'edge', 'runs', 'ls', 'place', 'far')).found
    const { stdout } = await command(['--cluster', 'edge', 'runs', 'get', String(id)], env)
    expect(JSON.parse(stdout).laps[0].input).toMatchObject({ cluster })
    const shown = await command(['--cluster', 'edge', 'runs', 'show', String(id)], env)
    expect(shown.stdout).toMatch(/^Cluster: +edge$/m)
    expect(await command(['--cluster', 'edge', 'replay', String(id), '-f', MODULE], env)).toMatchObject({ code: 0 })
    // The record of a process with one cluster stays as it was.
    const [alone] = (await json('--cluster', 'main', 'runs', 'ls', 'place', 'before')).found
    const before = await command(['--cluster', 'main', 'runs', 'get', String(alone.run)], env)
    expect(JSON.parse(before.stdout).laps[0].input).not.toHaveProperty('cluster')
  })

  it('explain, traces and log lines name the cluster', async () => {
    const whole = { ...env, FAIRLEAD_CLUSTERS: sites.file }
    const { stdout } = await command(['--cluster', 'edge', 'explain', 'place/far'], whole)
    expect(stdout).toMatch(/^cluster edge\n.*place/i)
    const asJson = await command(['--cluster', 'edge', 'explain', 'place/far', '-o', 'json'], whole)
    expect(JSON.parse(asJson.stdout)).toMatchObject({ cluster: 'edge', name: 'far' })
    const edge = { key: 'k8s.cluster.name', value: { stringValue: 'edge' } }
    const main = { key: 'k8s.cluster.name', value: { stringValue: 'main' } }
    const { spans } = collector
    await until(() => spans.some(({ attributes }) => attributes.some(({ value }) => value.stringValue === 'edge')))
    for (const { attributes } of spans)
      expect([edge, main]).toContainEqual(attributes.find(({ key }) => key === edge.key))
    expect(runsOf(up, 'edge')).toContain('default/far')
  })

  it('the console has the pages of each cluster under its name, and shows the name on each', async () => {
    await using console = startFairlead(['console', '--no-open'], { ...env, FAIRLEAD_CLUSTERS: sites.file })
    await until(() => console.output.some((line) => line.includes('?token=')))
    const [, base = '', token = ''] = /at (http\S+)\/\?token=(\S+)/.exec(console.output.join('\n')) ?? []
    const page = async (path: string) => {
      const response = await fetch(`${base}${path}`, { headers: { authorization: `Bearer ${token}` } })
      return response.text()
    }
    expect(await page('/')).toMatch(/main[^]*answers[^]*edge[^]*tier=edge[^]*answers/)
    const [main, edge] = [await page('/clusters/main/queue'), await page('/clusters/edge/queue')]
    expect([main, edge].map((text) => ['cluster main', 'cluster edge'].filter((name) => text.includes(name)))).toEqual([
      ['cluster main'],
      ['cluster edge'],
    ])
    expect(edge).toContain('href="/clusters/edge/objects/places.places.example.com/default/far"')
    expect(main).not.toContain('/far"')
  })

  it('cluster forget refuses the shard of a cluster that is listed, and repeats what was interrupted', async () => {
    const { kubeconfig } = sites.site('edge').cluster
    const settings = { NATS_URL: sites.nats.url, FAIRLEAD_PREFIX: 'edge', FAIRLEAD_SHARD: 'b' }
    await using sharded = startFairlead(['up', '--kubeconfig', kubeconfig], settings)
    await sharded.logged(({ msg }) => msg === 'started')
    sharded.kill('SIGTERM')
    await sharded.exited
    const forget = () => command(['cluster', 'forget', 'edge-b', '--delete-streams'], env)
    expect(await forget()).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('edge-b_WORK belongs to a shard of cluster edge'),
    })
    expect(await js.usage('edge-b_EVENTS')).toBeDefined()
    // Nobody can tell any more whose the others are.
    await js.admin.streams.delete('edge-b_EVENTS')
    expect(await forget()).toMatchObject({ code: 0, stdout: expect.stringContaining('edge-b_WORK: deleted') })
    expect(await command(['--cluster', 'edge', 'cluster', 'forget', 'edge'], env)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('lists edge as cluster edge'),
    })
  })

  it('cluster forget refuses one that is listed or served, shows the streams of another, and deletes on demand', async () => {
    const forget = (...args: string[]) => command(['cluster', 'forget', 'edge', ...args], env)
    const life = await lifeOf('')
    expect(await forget('--delete-streams')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('lists edge as cluster edge'),
    })
    env = { ...env, FAIRLEAD_CLUSTERS: join(sites.dir, 'without-edge.yaml') }
    const [first] = listed()
    await writeFile(env.FAIRLEAD_CLUSTERS, stringify({ clusters: [first] }))
    expect(await forget('--delete-streams')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('a process still serves place from edge_WORK'),
    })
    await sites.list([first!])
    await up.logged(({ msg, cluster }) => cluster === 'edge' && msg.startsWith('cluster is not listed'))
    {
      const { kubeconfig } = sites.site('edge').cluster
      const settings = { NATS_URL: sites.nats.url, FAIRLEAD_PREFIX: 'edge' }
      await using agent = startFairlead(['agent', '--kubeconfig', kubeconfig], settings)
      await agent.logged(({ msg }) => msg === 'started')
      await until(async () => (await forget()).stderr.includes('an agent of edge still runs'))
      expect((await forget('--delete-streams')).code).toBe(2)
      agent.kill('SIGTERM')
      await agent.exited
    }
    let shown = await forget()
    await until(async () => (shown = await forget()).code === 0)
    expect(shown.stdout).toMatch(/^edge_EVENTS: would be deleted, \d+ bytes\n[^]*Nothing was deleted/)
    const { stdout, code } = await forget('--delete-streams')
    expect({ stdout, code }).toEqual({ stdout: STREAMS.map((one) => `edge_${one}: deleted\n`).join(''), code: 0 })
    expect(await js.usage('edge_EVENTS')).toBeUndefined()
    // Neither the cluster nor the streams of others are touched.
    expect(await statusOf(sites.site('edge'), 'far')).toMatchObject({ size: 1 })
    expect(await lifeOf('')).toEqual(life)
  })
})
