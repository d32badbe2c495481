import { chown, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseAllDocuments } from 'yaml'
import { command } from '../support/command.ts'
import type { Kubectl } from '../support/kubectl.ts'
import type { World } from './world.ts'

const DEPLOY = fileURLToPath(new URL('../../deploy', import.meta.url))
/** What has to be ready. */
export const PARTS = ['statefulset/fairlead-nats', 'deployment/fairlead-bridge', 'deployment/fairlead-dispatcher']
const USER = 65_532
const AFFINITY = ['spec', 'template', 'spec', 'affinity']

/** Applies deploy/fairlead-ha on a cluster with a real node, whose registry has the images, and waits until it is ready. */
export async function deployFairlead(world: World, kubectl: Kubectl): Promise<void> {
  await addVolumes(world.cluster.dir, kubectl, 3)
  await kubectl(['apply', '-f', '-'], onOneNode(await kubectl(['kustomize', join(DEPLOY, 'fairlead-ha')])))
  await isReady(kubectl)
}

/** Creates the volumes of the first NATS servers, in the folder of the cluster. */
export async function addVolumes(dir: string, kubectl: Kubectl, count: number): Promise<void> {
  for (let index = 0; index < count; index += 1) {
    const path = join(dir, `jetstream-${index}`)
    await mkdir(path)
    await chown(path, USER, USER)
    await kubectl(['apply', '-f', '-'], volumeFor(`data-fairlead-nats-${index}`, path))
  }
}

export async function isReady(kubectl: Kubectl): Promise<void> {
  for (const one of PARTS) await kubectl(['-n', 'fairlead-system', 'rollout', 'status', one, '--timeout=240s'])
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
