import { hash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { addImage, cacheDir } from '#lab'
import { goEnvironment, runGo } from '../../../packages/lab/go-toolchain.ts'
import { NODE_IP } from '../../../packages/lab/node/options.ts'
import type { Kubectl } from '../../support/kubectl.ts'

/** As deployments of Serving have it; the queue proxy stands beside each function. */
const DEPLOYED = ['controller', 'webhook', 'activator', 'autoscaler']
const PROGRAMS = [...DEPLOYED, 'queue']
const SYSTEM = 'knative-serving'
const INGRESS = 'test-ingress'
export const INGRESS_DOMAIN = `${INGRESS}.${SYSTEM}.svc.cluster.local`

interface ServingOptions {
  /** A checkout of github.com/knative/serving, which has all that it is built from. */
  checkout: string
  registryUrl: string
  ingressPort: number
  /** The idle time after which a revision has no pod. */
  idleSeconds: number
}

/** Knative Serving itself, built here (some minutes, once), with its own manifests, on a cluster with a real node. */
export async function installServing(options: ServingOptions, kubectl: Kubectl): Promise<void> {
  const { checkout, registryUrl, ingressPort, idleSeconds } = options
  await addPrograms(checkout, registryUrl)
  const manifests = await manifestsIn(join(checkout, 'config/core'))
  const apply = (text: string) => kubectl(['apply', '--server-side', '--force-conflicts', '-f', '-'], text)
  await apply(manifests.filter((text) => !isLate(text)).join('\n---\n'))
  await configure(kubectl, idleSeconds)
  await kubectl(['wait', '--for=condition=Established', '--all', 'crd', '--timeout=240s'])
  await apply(manifests.filter(isLate).join('\n---\n'))
  await apply(JSON.stringify(ingressService(ingressPort)))
  for (const name of DEPLOYED)
    await kubectl(['-n', SYSTEM, 'rollout', 'status', `deployment/${name}`, '--timeout=240s'])
}

/** What needs a definition, or a configuration, that is applied before. */
const isLate = (text: string): boolean =>
  /^kind: (?:Deployment|Image|Certificate|HorizontalPodAutoscaler|PodDisruptionBudget|.*WebhookConfiguration)$/m.test(
    text,
  )

async function addPrograms(checkout: string, registryUrl: string): Promise<void> {
  const folder = join(cacheDir(), 'bin', `knative-${await fingerprintOf(checkout)}`)
  const missing = PROGRAMS.filter((name) => !existsSync(join(folder, name)))
  const flags = ['-mod=vendor', '-trimpath', '-ldflags', '-s -w']
  const env = goEnvironment(process.env, { CGO_ENABLED: '0' })
  for (const name of missing)
    await runGo(['build', ...flags, '-o', join(folder, name), `./cmd/${name}`], { cwd: checkout, env })
  for (const name of PROGRAMS)
    await addImage(registryUrl, `ko.local/knative/${name}`, {
      files: { [`ko-app/${name}`]: { from: join(folder, name) } },
      config: { Entrypoint: [`/ko-app/${name}`], User: '65532' },
    })
}

/** Returns a hash of the build's inputs. */
async function fingerprintOf(checkout: string): Promise<string> {
  const modules = await readFile(join(checkout, 'vendor/modules.txt'), 'utf8').catch((cause: Error) => {
    throw new Error(`FAIRLEAD_KNATIVE is ${checkout}: give the path of a checkout of github.com/knative/serving`, {
      cause,
    })
  })
  return hash('sha256', `${checkout} ${modules}`).slice(0, 12)
}

/** One object each, with the images that are made here. */
async function manifestsIn(folder: string): Promise<string[]> {
  const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith('.yaml')).sort()
  const texts = await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')))
  return texts
    .flatMap((text) => text.split(/^---$/m))
    .filter((text) => /^kind:/m.test(text))
    .map((text) => text.replaceAll(/ko:\/\/knative\.dev\/serving\/cmd\/([a-z-]+)/g, 'ko.local/knative/$1'))
}

/** Before the webhook is there that would check it. */
async function configure(kubectl: Kubectl, idleSeconds: number): Promise<void> {
  const settings: Record<string, Record<string, string>> = {
    'config-deployment': {
      'queue-sidecar-image': 'ko.local/knative/queue',
      'registries-skipping-tag-resolving': 'ko.local,index.docker.io',
    },
    'config-network': { 'ingress-class': 'test.ingress.networking.knative.dev' },
    'config-autoscaler': {
      'stable-window': `${idleSeconds}s`,
      'scale-to-zero-grace-period': `${idleSeconds}s`,
    },
  }
  for (const [name, data] of Object.entries(settings))
    await kubectl(['-n', SYSTEM, 'patch', 'configmap', name, '--type=merge', '-p', JSON.stringify({ data })])
}

/** A name in the cluster for what listens on the node's own address. */
const ingressService = (port: number) => ({
  apiVersion: 'v1',
  kind: 'List',
  items: [
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: INGRESS, namespace: SYSTEM },
      spec: { ports: [{ name: 'http', port: 80, targetPort: port }] },
    },
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: INGRESS, namespace: SYSTEM, labels: { 'kubernetes.io/service-name': INGRESS } },
      addressType: 'IPv4',
      ports: [{ name: 'http', port, protocol: 'TCP' }],
      endpoints: [{ addresses: [NODE_IP], conditions: { ready: true } }],
    },
  ],
})
