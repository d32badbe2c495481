import { execFile, spawnSync } from 'node:child_process'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { ensureBinaries, silentProgress } from '#lab'
import { type Block, blocksOf } from '../docs/blocks.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { BIN, startFairlead } from '../support/fairlead.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { until } from '../support/wait.ts'

const SDK = new URL('../../sdk/index.ts', import.meta.url).href
/** A function that writes everything that a function can leave behind. */
const WEBSITE = `import { Deployment, reconciler, resource, z } from '${SDK}'
const Website = resource({
  group: 'example.com', version: 'v1', kind: 'Website', plural: 'websites',
  spec: z.object({ image: z.string() }), status: z.object({ ready: z.boolean() }),
})
export const website = reconciler({
  name: 'website', for: Website, owns: [Deployment], writes: ['Metadata'],
  reconcile({ object: { metadata, spec } }) {
    const labels = { app: metadata.name }
    const template = { metadata: { labels }, spec: { containers: [{ name: 'web', image: spec.image }] } }
    const apply = [Deployment.of({ metadata: {}, spec: { paused: true, minReadySeconds: 5, selector: { matchLabels: labels }, template } })]
    return { apply, status: { ready: true }, metadata: { labels: { seen: 'yes' } } }
  },
  finalize: () => ({ apply: [] }),
})
`
/** What the other controller declares: another image, and not `paused`. */
const deploymentOf = (ownerReferences: unknown, spec: object = {}) => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'hello', namespace: 'default', ownerReferences },
  spec: {
    ...spec,
    selector: { matchLabels: { app: 'hello' } },
    template: { metadata: { labels: { app: 'hello' } }, spec: { containers: [{ name: 'web', image: 'nginx:2' }] } },
  },
})
const site = (image: string) => ({
  apiVersion: 'example.com/v1',
  kind: 'Website',
  metadata: { name: 'hello', namespace: 'default' },
  spec: { image },
})

const lacksJq = spawnSync('sh', ['-c', 'command -v jq']).status !== 0
if (lacksJq) console.log('The commands of docs/deploy/leave.md are not run: this machine lacks jq')

const stack = new AsyncDisposableStack()
let kubectl: Kubectl
let env: Record<string, string>
let dir: string
let blocks: Block[]

beforeAll(async () => {
  const cluster = stack.use(await borrowCluster({ nats: true }))
  kubectl = await kubectlFor(cluster)
  dir = await mkdtemp(join(tmpdir(), 'fl-leave-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  await mkdir(join(dir, 'src'))
  await writeFile(join(dir, 'src/index.ts'), WEBSITE)
  await writeFile(join(dir, 'npx'), `#!/bin/sh\nshift\nexec "${process.execPath}" "${BIN}" "$@"\n`)
  await chmod(join(dir, 'npx'), 0o755)
  const programs = dirname((await ensureBinaries(['kubectl'], silentProgress))('kubectl'))
  const path = [dir, programs, dirname(process.execPath), process.env['PATH']].join(':')
  env = { PATH: path, KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
  blocks = (await blocksOf('deploy/leave')).filter(({ language }) => language === 'sh')
})
afterAll(() => stack.disposeAsync())

const shell = (script = '') => promisify(execFile)('sh', ['-euc', script], { cwd: dir, env })
const read = async (what: string) =>
  JSON.parse(await kubectl(['get', what, '-o', 'json', '--show-managed-fields'])) as KubeObject & {
    spec: { paused?: boolean; minReadySeconds?: number; template: { spec: { containers: { image: string }[] } } }
    status?: object
  }
const managersOf = ({ metadata }: KubeObject) =>
  (metadata['managedFields'] as { manager: string }[]).map(({ manager }) => manager)
const marksOf = ({ metadata }: KubeObject) =>
  Object.keys(metadata.annotations ?? {}).filter((name) => name.includes('fairlead.dev'))

it.skipIf(lacksJq)(
  'by docs/deploy/leave.md, another controller takes over every object in place, and no mark is left',
  async () => {
    const [stop, take, unmark, forget, ...others] = blocks.map(({ text }) => text)
    expect(others).toEqual([])
    await shell('npx fairlead install -f src/index.ts')
    await using _up = startFairlead(['up', '-f', join(dir, 'src/index.ts')], env)
    await kubectl(['create', '-f', '-'], site('nginx:0'))
    await until(async () => (await read('website/hello')).status !== undefined)
    // A change: the function has created the Deployment, and applied it.
    await kubectl(['apply', '-f', '-'], site('nginx:1'))
    await until(async () => (await read('deployment/hello')).spec.template.spec.containers[0]?.image === 'nginx:1')
    const before = { website: await read('website/hello'), deployment: await read('deployment/hello') }
    expect(before.website.metadata.finalizers).toEqual(['fairlead.dev/website'])
    expect(marksOf(before.website)).toEqual(['metadata.fairlead.dev/website'])
    expect(marksOf(before.deployment).toSorted()).toEqual(['fairlead.dev/desired', 'fairlead.dev/reconciler'])
    expect(managersOf(before.deployment)).toContain('fairlead-website')

    expect((await shell(stop)).stdout).toContain('deployment.apps/hello')
    expect((await read('website/hello')).metadata).toMatchObject({ uid: before.website.metadata.uid })
    expect((await read('website/hello')).metadata.finalizers).toBeUndefined()
    await expect(kubectl(['get', 'reconciler/website'])).rejects.toThrow('NotFound')

    const { ownerReferences } = before.deployment.metadata
    expect(ownerReferences).toMatchObject([{ kind: 'Website', name: 'hello', controller: true }])
    const declares = (spec: object) =>
      writeFile(join(dir, 'deployment.yaml'), JSON.stringify(deploymentOf(ownerReferences, spec)))
    await declares({ minReadySeconds: 5 })
    await expect(shell(take?.replace('--force-conflicts', ''))).rejects.toThrow('conflict with "fairlead-website"')
    await shell(take)
    await shell(unmark)
    const taken = await read('deployment/hello')
    expect(taken.metadata).toMatchObject({ uid: before.deployment.metadata.uid, ownerReferences })
    expect(taken.spec.template.spec.containers[0]?.image).toBe('nginx:2')
    expect([...marksOf(taken), ...marksOf(await read('website/hello'))]).toEqual([])
    // The new controller never set it.
    expect(taken.spec.paused).toBe(true)

    // A field that the new controller drops goes only when Fairlead does not own it too.
    const dropped = async () => {
      await declares({})
      await shell(take)
      return (await read('deployment/hello')).spec.minReadySeconds
    }
    expect(await dropped()).toBe(5)
    await declares({ minReadySeconds: 5 })
    await shell(take)
    await shell(forget)
    expect(await dropped()).toBeUndefined()
    const last = await read('deployment/hello')
    expect(managersOf(last)).not.toContain('fairlead-website')
    expect(last.metadata).toMatchObject({ uid: before.deployment.metadata.uid, ownerReferences })
  },
)
