import { chown, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { cacheDir } from '#local'
import { command } from '../support/command.ts'
import { addFairleadImages } from '../support/fairlead-images.ts'
import { CHART, helmIn, SYSTEM, TAKE_OVER } from '../support/helm.ts'
import type { Kubectl } from '../support/kubectl.ts'
import { at, untilPhase, type World } from './world.ts'

const DEPLOY = fileURLToPath(new URL('../../deploy', import.meta.url))
const PARTS = ['statefulset/fairlead-nats', 'deployment/fairlead-bridge', 'deployment/fairlead-dispatcher']
const USER = 65_532
const AFFINITY = ['spec', 'template', 'spec', 'affinity']

/** Applies deploy/fairlead-ha on a cluster with a real node, whose registry has the images, and waits until it is ready. */
export async function deployFairlead(world: World, kubectl: Kubectl): Promise<void> {
  await addVolumes(world, kubectl, 3)
  await kubectl(['apply', '-f', '-'], onOneNode(await kubectl(['kustomize', join(DEPLOY, 'fairlead-ha')])))
  await isReady(kubectl)
}

/** By the chart, which has the objects of deploy/fairlead; what `install` has applied becomes part of it. */
async function deployChart(world: World, kubectl: Kubectl): Promise<void> {
  await addVolumes(world, kubectl, 1)
  const helm = await helmIn(world.cluster.dir, world.cluster.kubeconfig)
  await helm(['install', 'fairlead', CHART, ...SYSTEM, ...TAKE_OVER, '--timeout', '90s'])
  await isReady(kubectl)
}

async function addVolumes({ cluster }: World, kubectl: Kubectl, count: number): Promise<void> {
  for (let index = 0; index < count; index += 1) {
    const path = join(cluster.dir, `jetstream-${index}`)
    await mkdir(path)
    await chown(path, USER, USER)
    await kubectl(['apply', '-f', '-'], volumeFor(`data-fairlead-nats-${index}`, path))
  }
}

async function isReady(kubectl: Kubectl): Promise<void> {
  for (const one of PARTS) await kubectl(['-n', 'fairlead-system', 'rollout', 'status', one, '--timeout=90s'])
}

/** Three NATS servers refuse to share a node, and there is one. */
const onOneNode = (manifests: string): string =>
  parseAllDocuments(manifests)
    .map((manifest) => {
      if (manifest.hasIn(AFFINITY)) manifest.deleteIn(AFFINITY)
      return manifest.toString()
    })
    .join('---\n')

const volumeFor = (claim: string, path: string): object => ({
  apiVersion: 'v1',
  kind: 'PersistentVolume',
  metadata: { name: claim },
  spec: {
    capacity: { storage: '10Gi' },
    accessModes: ['ReadWriteOnce'],
    claimRef: { namespace: 'fairlead-system', name: claim },
    hostPath: { path },
  },
})

/** What became of each Secret. */
export async function installCertificates({ env }: World): Promise<string[]> {
  const { stdout } = await command(['install', '--nats-certificates', '-o', 'json'], env)
  const installed = JSON.parse(stdout) as { kind: string; result: string }[]
  return installed.filter(({ kind }) => kind === 'Secret').map(({ result }) => result)
}

/** On a cluster with a real node, on which nothing of Fairlead runs any more. */
export function deployedOnCluster(scene: () => { world: World; kubectl: Kubectl }): void {
  let world: World
  let kubectl: Kubectl

  beforeAll(async () => {
    ;({ world, kubectl } = scene())
    await addFairleadImages(world.cluster.registryUrl!, cacheDir(process.env))
  })

  const system = (...args: string[]) => kubectl(['-n', 'fairlead-system', ...args])
  const done = (name: string) => untilPhase(kubectl, 'DONE', name)

  it('starts where the restricted Pod Security Standard is enforced, by the chart, whose Job makes the certificates', async () => {
    expect(await installCertificates(world)).toEqual(Array.from({ length: 8 }, () => 'created'))
    expect(await installCertificates(world)).toEqual(Array.from({ length: 8 }, () => 'unchanged'))
    await expect(system('run', 'loose', '--image=busybox')).rejects.toThrow('violates PodSecurity "restricted')
    await system('delete', 'secret', '-l', 'app.kubernetes.io/part-of=fairlead')
    await deployChart(world, kubectl)
    expect(
      (await system('get', 'secret', '-l', 'app.kubernetes.io/part-of=fairlead', '-o', 'name')).trim().split('\n'),
    ).toHaveLength(8)
  })

  it('runs an At, and is refused nothing', async () => {
    await world.create(at('by-pods', new Date()))
    await done('by-pods')
    expect(await kubectl(['logs', 'by-pods-pod'])).toBe('YAY\n')
    for (const part of PARTS.slice(1)) expect(await system('logs', part, '--all-pods')).not.toContain('refuses')
  })

  it('loses neither timer nor change when all of its pods are gone at once', async () => {
    await world.create(at('waiting', new Date(Date.now() + 6000)))
    await untilPhase(kubectl, 'PENDING', 'waiting')
    // Not by force: a nats-server must have ended before another one has its volume.
    await system('delete', 'pod', '--all', '--grace-period=1')
    await world.create(at('meanwhile', new Date()))
    await done('meanwhile')
    await done('waiting')
  })
}
