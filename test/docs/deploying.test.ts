import { execFile } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import type { KubeObject } from '#contracts'
import { parseReference, Repository } from '#image'
import { cacheDir, ensureBinaries, type Nats, silentProgress } from '#lab'
import { freePorts } from '../../packages/lab/ports.ts'
import { BIN, startFairlead } from '../support/fairlead.ts'
import { nodeBase } from '../support/fairlead-images.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { installPackage, PACKED_WITHIN_MS, packedPackage } from '../support/package.ts'
import { startRegistry } from '../support/registry.ts'
import { startTestCluster, startTestNats } from '../support/servers.ts'
import { shippedAccounts } from '../support/shipped-users.ts'
import { unpackIn } from '../support/unpack.ts'
import { type Block, blocksOf } from './blocks.ts'

/**
 * The guide on a real kube-apiserver, registry and nats-server. KWOK pretends the pods. Their processes run here as the pods
 * would: the files of the pushed image, the arguments and variables of the Deployments, the certificates of the Secrets and
 * tokens of the ServiceAccounts. `test/docs/tutorial.test.ts` runs such pods on a real node, by Helm.
 */
const stack = new AsyncDisposableStack()
const SYSTEM = ['-n', 'fairlead-system']
let kubectl: Kubectl
let kubeconfig: string
let env: Record<string, string>
let home: string
let registry: string
let base: string
let blocks: Block[]

beforeAll(async () => {
  blocks = await blocksOf('guides/deploying')
  await packedPackage()
  const cluster = stack.use(await startTestCluster({ controllers: true, node: 'kwok' }))
  kubeconfig = cluster.kubeconfig
  kubectl = await kubectlFor(cluster)
  registry = stack.use(await startRegistry()).host
  base = await nodeBase(cacheDir())
  home = await mkdtemp(join(tmpdir(), 'fl-guide-'))
  stack.defer(() => rm(home, { recursive: true, force: true }))
  await mkdir(join(home, 'fairlead'))
  // npx finds the command of the project, or of the clone.
  const installed = 'node_modules/fairlead/cli/bin.js'
  const npx = `#!/bin/sh\nshift\n[ -f ${installed} ] && exec node ${installed} "$@"\nexec node "${BIN}" "$@"\n`
  await writeFile(join(home, 'npx'), npx)
  await chmod(join(home, 'npx'), 0o755)
  const programs = dirname((await ensureBinaries(['kubectl'], silentProgress))('kubectl'))
  const path = [home, programs, dirname(process.execPath), process.env['PATH']].join(':')
  env = { HOME: home, PATH: path, KUBECONFIG: kubeconfig }
}, PACKED_WITHIN_MS)
afterAll(() => stack.disposeAsync())

const project = () => join(home, 'my-operator')
const shell = async (script: string, cwd = project()): Promise<string> => {
  const ran = promisify(execFile)('sh', ['-euc', script], { cwd, env })
  const { stdout } = await ran.catch((error: Error & { stdout: string; stderr: string }) => {
    throw new Error(`${script}\n${error.stdout}\n${error.stderr}`, { cause: error })
  })
  return stdout.trim()
}

it('by the guide, a function of a new project serves an object', { timeout: 300_000 }, async () => {
  const commands = blocks.filter(({ language }) => language === 'sh').map(({ text }) => text)
  const [create = '', image = '', install = '', apply = '', functions = '', object = '', ...others] = commands
  expect(others).toEqual([])

  const { tarball } = await packedPackage()
  const packed = '$PWD/$(npm pack --silent ./build/package)'
  expect(create).toContain(packed)
  const made = create
    .replace('npm ci && npm run build', '')
    .replace(packed, tarball)
    .replace(/&& npm install$/m, '')
  await shell(made, join(home, 'fairlead'))
  await installPackage(project())

  const here = `--base ${base} --platform linux/${process.arch === 'x64' ? 'amd64' : process.arch}`
  const pushed = await shell(image.replace('REGISTRY', registry).replace('image', `image ${here} --plain-http`))
  expect(pushed).toMatch(new RegExp(`^${registry}/my-operator(:TAG)?@sha256:[0-9a-f]{64}$`))
  await shell(install)

  const kustomization = blocks.find(({ language }) => language === 'yaml')?.text ?? ''
  const digest = pushed.split('@')[1] ?? ''
  const written = kustomization.replace('REGISTRY', registry).replace('sha256:DIGEST', digest)
  await writeFile(join(project(), 'kustomization.yaml'), written)
  const app = join(await unpacked(pushed), 'app')
  await shell(apply.trim().split('\n')[0] ?? '')
  const nats = await natsOfSecrets()
  for (const part of ['bridge', 'dispatcher']) await startPart(part, app, nats)
  await shell(apply)
  await shell(functions)

  const shown = await shell(object)
  expect(shown).toContain('website.example.com/hello condition met')
  for (const of of ['website.example.com', 'configmap', 'deployment.apps', 'service'])
    expect(shown).toMatch(new RegExp(`^${of.replaceAll('.', '\\.')}/hello `, 'm'))
  const page = await kubectl(['get', 'configmap/hello', '-o', 'jsonpath={.data.index\\.html}'])
  expect(page).toBe('<h1>Hello</h1>')
})

type Descriptor = Parameters<Repository['read']>[0]

/** The files that the layers of the pushed image add to its base. */
async function unpacked(reference: string): Promise<string> {
  const repository = new Repository(parseReference(reference), { plainHttp: true })
  const read = async (digest = ''): Promise<{ manifests?: Descriptor[]; layers: Descriptor[] }> =>
    JSON.parse((await repository.manifest(digest)).bytes.toString())
  const root = await read(reference.split('@')[1])
  const { layers } = root.manifests === undefined ? root : await read(root.manifests[0]?.digest)
  const folder = join(home, 'image')
  await mkdir(folder)
  for (const layer of layers.slice(-2)) {
    const files = await unpackIn(home, gunzipSync(await repository.read(layer)))
    await promisify(execFile)('cp', ['-R', `${files}/.`, folder])
  }
  return folder
}

/** The folder with the files of a Secret, as a volume would have them. */
async function filesOf(secret: string): Promise<string> {
  const { data } = JSON.parse(await kubectl([...SYSTEM, 'get', 'secret', secret, '-o', 'json'])) as {
    data: Record<string, string>
  }
  const folder = join(home, secret)
  await mkdir(folder, { recursive: true })
  for (const [name, text] of Object.entries(data)) await writeFile(join(folder, name), Buffer.from(text, 'base64'))
  return folder
}

async function natsOfSecrets(): Promise<Nats> {
  const at = await filesOf('fairlead-nats-server')
  const files = { cert_file: join(at, 'tls.crt'), key_file: join(at, 'tls.key'), ca_file: join(at, 'ca.crt') }
  return stack.use(await startTestNats({ accounts: shippedAccounts(), tls: { ...files, verify_and_map: true } }))
}

interface Container {
  args: string[]
  env: { name: string; value?: string; valueFrom?: { fieldRef: { fieldPath: string } } }[]
}

/** The process of a Deployment, as one of its pods would run it. */
async function startPart(part: string, app: string, nats: Nats): Promise<void> {
  const name = `fairlead-${part}`
  const deployment = JSON.parse(await kubectl([...SYSTEM, 'get', 'deployment', name, '-o', 'json'])) as KubeObject & {
    spec: { template: { spec: { serviceAccountName: string; containers: [Container] } } }
  }
  const { serviceAccountName, containers } = deployment.spec.template.spec
  const [container] = containers
  await kubectl([...SYSTEM, 'wait', '--for=condition=Available', `deployment/${name}`, '--timeout=240s'])
  const pods = await kubectl([...SYSTEM, 'get', 'pods', '-l', `app.kubernetes.io/name=${part}`, '-o', 'name'])
  const fields: Record<string, string> = {
    'metadata.name': pods.split('\n')[0]?.replace('pod/', '') ?? '',
    'metadata.namespace': 'fairlead-system',
  }
  const secret = await filesOf(`fairlead-nats-${part}`)
  const valueOf = ({ value = '', valueFrom }: Container['env'][number]) =>
    valueFrom === undefined ? value.replace('/etc/nats-tls', secret) : (fields[valueFrom.fieldRef.fieldPath] ?? '')
  const variables = Object.fromEntries(container.env.map((one) => [one.name, valueOf(one)]))
  expect(variables['NATS_URL']).toBe('tls://fairlead-nats.fairlead-system.svc:4222')
  const [port = 0] = await freePorts(1)
  const args = container.args.map((arg) =>
    arg === ':8080' ? `127.0.0.1:${port}` : arg.startsWith('src/') ? join(app, arg) : arg,
  )
  const own = { KUBECONFIG: await configOf(serviceAccountName), NATS_URL: nats.url.replace('127.0.0.1', 'localhost') }
  const bin = join(app, 'node_modules/fairlead/cli/bin.js')
  stack.use(startFairlead(args, { ...variables, ...own, LOG_LEVEL: 'info' }, bin))
}

/** What a pod finds in its cluster: the address, the authority and the token of its account. */
async function configOf(account: string): Promise<string> {
  const token = (await kubectl([...SYSTEM, 'create', 'token', account])).trim()
  const config = parse(await readFile(kubeconfig, 'utf8')) as { users: { name: string; user: object }[] }
  for (const one of config.users) one.user = { token }
  const file = join(home, `${account}.kubeconfig`)
  await writeFile(file, stringify(config))
  return file
}
