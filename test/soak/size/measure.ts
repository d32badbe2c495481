import { appendFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createKubeClient, loadKubeConfig } from '#kube'
import { connectJetStream } from '#nats'
import { forEachAtMost } from '#primitives'
import { etcdOf } from '../../support/cluster-etcd.ts'
import { fairlead } from '../../support/fairlead.ts'
import { startTestCluster, startTestNats } from '../../support/servers.ts'
import { Etcd } from './fill.ts'
import { teamOf } from './function.ts'
import { firstList, ramp, startAgain, steady } from './phases.ts'
import { type Scene, type Size, say, startBridge, startDispatcher, timed } from './scene.ts'

const HERE = fileURLToPath(new URL('.', import.meta.url))

export async function measureSize(size: Size, results: string | undefined): Promise<boolean> {
  const report = (what: string, figures: object) => {
    say(`${what}: ${JSON.stringify(figures)}`)
    if (results !== undefined)
      appendFileSync(results, `${JSON.stringify({ replicas: size.replicas, what, ...figures })}\n`)
  }
  await using cluster = await startTestCluster({ isLarge: true })
  await using nats = await startTestNats({ replicas: size.replicas })
  await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'size' })
  await using js = await connectJetStream({ servers: nats.url, name: 'size' })
  const functionFile = await functionsFor(size.teams)
  const env = {
    KUBECONFIG: cluster.kubeconfig,
    NATS_URL: nats.url,
    LOG_LEVEL: 'info',
    FAIRLEAD_REPLICAS: String(size.replicas),
  }
  const etcd = new Etcd(await etcdOf(cluster.dir), size.bytes)
  await timed(report, 'installed', async () => {
    await forEachAtMost(16, numbers(size.teams), async (number) => {
      await kube.create('/api/v1/namespaces', { metadata: { name: teamOf(number) } })
    })
    const { code, stderr } = await fairlead(['install', '--function', functionFile], env)
    if (code !== 0) throw new Error(`fairlead install ended with ${code}: ${stderr.slice(-2000)}`)
    return { reconcilers: size.teams }
  })
  await timed(report, 'objects written', async () => {
    await etcd.fill(
      size,
      every(100_000, (done) => say(`${done} objects written`)),
    )
    return { objects: size.teams * (size.primaries + size.others) }
  })
  const scene: Scene = {
    size,
    cluster,
    nats,
    js,
    kube,
    env,
    functionFile,
    report,
    dispatcher: startDispatcher({ env, functionFile }),
    bridge: startBridge({ env }),
  }
  try {
    await firstList(scene)
    const isFollowed = await steady(scene, etcd)
    await startAgain(scene, etcd)
    await ramp(scene, etcd)
    return isFollowed
  } finally {
    for (const one of [scene.bridge, scene.dispatcher]) await one[Symbol.asyncDispose]()
    await rm(dirname(functionFile), { recursive: true, force: true })
  }
}

/** A module that exports one reconciler for each team. */
async function functionsFor(teams: number): Promise<string> {
  const file = join(await mkdtemp(join(tmpdir(), 'fl-size-')), 'functions.ts')
  const lines = [...numbers(teams)].map((number) => `export const size${number} = sizeReconciler(${number})`)
  await writeFile(file, [`import { sizeReconciler } from '${join(HERE, 'function.ts')}'`, ...lines, ''].join('\n'))
  return file
}

function every(step: number, act: (done: number) => void): (done: number) => void {
  let next = step
  return (done) => {
    if (done < next) return
    next += step
    act(done)
  }
}

function* numbers(count: number): Generator<number> {
  for (let number = 0; number < count; number++) yield number
}
