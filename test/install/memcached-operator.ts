import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { afterAll, beforeAll } from 'vitest'
import type { KubeObject } from '#contracts'
import { ensureBinaries, silentProgress } from '#lab'
import { borrowCluster } from '../support/borrowed.ts'
import { BIN } from '../support/fairlead.ts'
import { memcachedOperator } from '../support/go-program.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { until } from '../support/wait.ts'

const SDK = new URL('../../sdk/index.ts', import.meta.url).href
const CONTROLLER_GEN = new URL('../support/controller-gen.yaml', import.meta.url)
/** The source that guides quote. */
export const CONTROLLER = new URL('../support/go/memcached-operator/controller.go', import.meta.url)
const IMAGE = 'memcached:1.6'
/** Of the operator. */
export const FORMER = 'cache.example.com/finalizer'

/** What test/support/go/memcached-operator does, as a function. With further fields of the Deployment, options and fields of the outcome. */
export const functionWith = ({ image = IMAGE, spec = '', also = '', outcome = '' } = {}): string => `
import { ConfigMap, Deployment, reconciler, resource, z } from '${SDK}'
const Memcached = resource({
  group: 'cache.example.com', version: 'v1alpha1', kind: 'Memcached', plural: 'memcacheds',
  spec: z.object({ size: z.int32().min(1).max(3).optional(), containerPort: z.int32().optional() }), status: z.object({}),
})
export const memcached = reconciler({
  name: 'memcached', for: Memcached, owns: [Deployment, ConfigMap], ${also}
  reconcile({ object: { metadata: { name }, spec: { size, containerPort } } }) {
    const labels = { app: name }
    const ports = containerPort === undefined ? [] : [{ name: 'memcached', containerPort }]
    const template = { metadata: { labels }, spec: { containers: [{ name: 'memcached', image: '${image}', ports }] } }
    return {
      apply: [Deployment.of({ metadata: { name }, spec: { replicas: size, selector: { matchLabels: labels }, template, ${spec} } })],
      conditions: [{ type: 'Ready', status: 'True', reason: 'DeploymentWritten' }], ${outcome}
    }
  },
  finalize: ({ object: { metadata: { name } } }) => ({
    apply: [{ ...ConfigMap.of({ metadata: { name: name + '-cleaned' }, data: { by: 'fairlead-memcached' } }), retain: true }],
  }),
})
`

type Seen = KubeObject & {
  spec: {
    replicas?: number
    paused?: boolean
    template: { spec: { containers: { image: string; ports?: object[] }[] } }
  }
  status?: { conditions?: { type: string; status: string; reason: string; message: string }[] }
  data?: { by?: string }
}

/** An API server with the definition that the operator brings along, and a project with a function beside it. */
interface Place {
  kubectl: Kubectl
  env: Record<string, string>
  /** The file of the function. */
  file: string
  program: string
  /** Runs commands of a guide in the folder of the project. Resolves with what they print, whatever their exit code. */
  shell: (script: string | undefined) => Promise<string>
  read: (what: string) => Promise<Seen>
  isGone: (what: string) => Promise<boolean>
}

/** One for the tests of a file. */
export function usePlace(): () => Place {
  const stack = new AsyncDisposableStack()
  let place: Place
  beforeAll(async () => {
    place = await placeOf(stack)
  })
  afterAll(() => stack.disposeAsync())
  return () => place
}

async function placeOf(stack: AsyncDisposableStack): Promise<Place> {
  const [cluster, program] = await Promise.all([borrowCluster({ nats: true }), memcachedOperator()])
  stack.use(cluster)
  const kubectl = await kubectlFor(cluster)
  const dir = await mkdtemp(join(tmpdir(), 'fl-memcached-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  await mkdir(join(dir, 'src'))
  await writeFile(join(dir, 'npx'), `#!/bin/sh\nshift\nexec "${process.execPath}" "${BIN}" "$@"\n`)
  await chmod(join(dir, 'npx'), 0o755)
  const programs = dirname((await ensureBinaries(['kubectl'], silentProgress))('kubectl'))
  const path = [dir, programs, dirname(process.execPath), process.env['PATH']].join(':')
  const env = { PATH: path, KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
  const definition = await readFile(CONTROLLER_GEN, 'utf8')
  await kubectl(['apply', '-f', '-'], definition.replaceAll('port.example.com', 'cache.example.com'))
  await kubectl(['wait', '--for=condition=Established', 'crd/memcacheds.cache.example.com', '--timeout=240s'])
  const read = async (what: string) =>
    JSON.parse(await kubectl(['get', what, '-o', 'json', '--show-managed-fields'])) as Seen
  return {
    kubectl,
    env,
    file: join(dir, 'src/index.ts'),
    program,
    read,
    shell: (script = '') =>
      promisify(execFile)('sh', ['-uc', script], { cwd: dir, env }).then(
        ({ stdout, stderr }) => stdout + stderr,
        ({ stdout, stderr }: { stdout: string; stderr: string }) => stdout + stderr,
      ),
    isGone: (what) =>
      read(what).then(
        () => false,
        (error: Error) => error.message.includes('NotFound'),
      ),
  }
}

/** The operator as a process of its own, once it holds its Lease; stopped as a pod is, or killed at the end of the block. */
export async function startOperator({ program, env, kubectl }: Place, args: string[] = []) {
  // What one that was stopped has left would make the next one wait for 15 s.
  await kubectl(['delete', 'lease', '86f835c3.example.com', '--ignore-not-found'])
  const child = spawn(program, args, { env, stdio: ['pipe', 'ignore', 'pipe'] })
  const exited = once(child, 'exit')
  const logs: string[] = []
  createInterface({ input: child.stderr }).on('line', (line) => logs.push(line))
  const logged = (text: string) =>
    until(() => logs.some((line) => line.includes(text)), {
      what: `the operator logs ${text}`,
      unless: () => {
        if (child.exitCode !== null) throw new Error(`the operator has ended: ${logs.slice(-5).join('\n')}`)
      },
    })
  const stop = async (signal: NodeJS.Signals = 'SIGTERM') => {
    child.kill(signal)
    await exited
  }
  await logged('Starting workers')
  return { logged, stop, [Symbol.asyncDispose]: () => stop('SIGKILL') }
}

export const memcached = (name: string, spec: object = {}) => ({
  apiVersion: 'cache.example.com/v1alpha1',
  kind: 'Memcached',
  metadata: { name, namespace: 'default' },
  spec: { size: 2, containerPort: 11211, ...spec },
})

interface ManagedFields {
  manager: string
  operation: string
  subresource?: string
  fieldsV1: { 'f:spec'?: { 'f:replicas'?: object } }
}

/** The managers of `replicas`, with their operation. */
export const managersOfReplicas = ({ metadata }: KubeObject): string[] =>
  (metadata['managedFields'] as ManagedFields[])
    .filter(
      ({ fieldsV1, subresource }) => subresource === undefined && fieldsV1['f:spec']?.['f:replicas'] !== undefined,
    )
    .map(({ manager, operation }) => `${manager} ${operation}`)
    .toSorted()
