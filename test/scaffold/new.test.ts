import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { functionRbac } from '#install'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { ConfigMap, Deployment, definitionsOf, manifest, reconciler } from '#sdk'
import { Website } from '../../packages/scaffold/templates/resource/src/website.ts'
import { startFairlead } from '../support/fairlead.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { installPackage, PACKED_WITHIN_MS, packedPackage } from '../support/package.ts'
import { startTestCluster } from '../support/servers.ts'
import { until } from '../support/wait.ts'

const ROOT = join(import.meta.dirname, '../..')
const run = promisify(execFile)

let dir: string
let cluster: Awaited<ReturnType<typeof startTestCluster>>
let kubectl: Kubectl
let kube: KubeClient
let tarball: string
const stack = new AsyncDisposableStack()

beforeAll(async () => {
  ;({ tarball } = await packedPackage())
  dir = await mkdtemp(join(tmpdir(), 'fl-new-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  await withDependencies()
  cluster = stack.use(await startTestCluster({ nats: true, controllers: true, node: 'kwok' }))
  kubectl = await kubectlFor(cluster)
  kube = stack.use(createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' }))
}, PACKED_WITHIN_MS)
afterAll(() => stack.disposeAsync())

const env = () => ({
  HOME: process.env['HOME'],
  PATH: `${dirname(process.execPath)}:${process.env['PATH']}`,
  KUBECONFIG: cluster.kubeconfig,
})
/** The command as npm has installed it, in a folder. */
const fairlead = (args: string[], cwd = dir) =>
  run(process.execPath, [join(dir, 'node_modules/fairlead/cli/bin.js'), ...args], { cwd, env: env() })
const sh = (script: string, cwd: string) => run('sh', ['-euc', script], { cwd, env: env(), maxBuffer: 2 ** 26 })

/** What `npm install` would bring: TypeScript and the types of Node.js beside the package, for all projects below the folder. */
async function withDependencies(): Promise<void> {
  await installPackage(dir)
  for (const path of ['typescript', '@types', '@typescript', 'undici-types']) {
    const place = join(dir, 'node_modules', path)
    await rm(place, { recursive: true, force: true })
    await symlink(join(ROOT, 'node_modules', path), place)
  }
  await cp(join(ROOT, 'node_modules/.bin/tsc'), join(dir, 'node_modules/.bin/tsc'), { verbatimSymlinks: true })
}

/** Runs the script `dev` of a project on the cluster of this test, with a nats-server of its own, until a line matches and it has done its work. */
async function dev(project: string, says: RegExp, hasWorked: () => Promise<unknown>): Promise<void> {
  const { scripts } = JSON.parse(await readFile(join(project, 'package.json'), 'utf8')) as { scripts: { dev: string } }
  const [, ...args] = scripts.dev.split(' ')
  const [context = ''] = (await kubectl(['config', 'get-contexts', '-o', 'name'])).trim().split('\n')
  const servers = ['--kubeconfig', cluster.kubeconfig, '--context', context]
  const bin = join(dir, 'node_modules/fairlead/cli/bin.js')
  const child = spawn(process.execPath, [bin, ...servers, ...args], {
    cwd: project,
    env: env(),
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const ended = once(child, 'exit')
  const lines: string[] = []
  const said = new Promise<void>((resolve) => {
    createInterface(child.stderr).on('line', (line) => {
      lines.push(line)
      if (says.test(line)) resolve()
    })
  })
  const late = AbortSignal.timeout(60_000)
  await Promise.race([said, ended, once(late, 'abort')])
  if (child.exitCode === null) await hasWorked().finally(() => child.kill('SIGINT'))
  expect(lines.join('\n')).toMatch(says)
  expect(await ended).toEqual([0, null])
}

interface Case {
  template: string
  args: string[]
  /** A line of `npm run dev`. */
  says: RegExp
  owned: [path: string, namespace: string]
}

const CASES: Case[] = [
  { template: 'objects', args: [], says: /Namespace shop is applied/, owned: ['resourcequota/team', 'shop'] },
  {
    template: 'existing',
    args: ['--crd', 'memcacheds.cache.example.com'],
    says: /Memcached default\/example is applied/,
    owned: ['configmap/example-seen', 'default'],
  },
]

describe('a new project in TypeScript', () => {
  beforeAll(async () => {
    await kubectl(['apply', '-f', join(ROOT, 'crds/cache.example.com_memcacheds.yaml')])
    await kubectl(['wait', '--for=condition=Established', 'crd/memcacheds.cache.example.com'])
  })

  it.each(CASES)(
    'from $template: compiles, passes its tests, and does its work on a cluster',
    { timeout: 600_000 },
    async (row) => {
      const { template, args, says, owned } = row
      const made = await fairlead(['new', template, '--template', template, '--fairlead', `file:${tarball}`, ...args])
      expect(made.stdout).toContain(`cd ${template}\n  npm install\n`)
      const project = join(dir, template)
      await sh('npm run check && npm test', project)
      const isThere = (path: string, namespace: string) =>
        kubectl(['get', path, '-n', namespace]).then(Boolean, () => false)
      await dev(project, says, () => until(() => isThere(...owned), { what: `${owned[0]} is there` }))
      const { stdout } = await sh('npm run generate', project)
      expect(stdout).toContain('deploy/rbac.yaml')
      expect(await kubectl(['kustomize', join(project, 'deploy')])).toContain('name: fairlead-')
      await kubectl(['delete', '-f', join(project, 'examples'), '--wait=false'])
    },
  )

  it('gets one more kind, and a change that would break stored objects is refused', async () => {
    const project = join(dir, 'more')
    await fairlead(['new', 'more', '--fairlead', `file:${tarball}`])
    await fairlead(['new', 'kind', 'Proxy', '--group', 'shops.test'], project)
    expect((await readFile(join(project, 'src/index.ts'), 'utf8')).split('\n')).toHaveLength(3)
    await sh('npm run check && npm test && npm run generate', project)
    expect(await readFile(join(project, 'deploy/crds.yaml'), 'utf8')).toContain('proxies.shops.test')
    const again = fairlead(['new', 'kind', 'Proxy'], project)
    await expect(again).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining('is there already') })

    const file = join(project, 'src/proxy.ts')
    await writeFile(file, (await readFile(file, 'utf8')).replace('html: z.string().min(1)', 'html: z.int32()'))
    const generate = fairlead(['generate', 'manifests', '-f', 'src/index.ts', '--to', 'deploy'], project)
    await expect(generate).rejects.toMatchObject({ stderr: expect.stringContaining('spec.html was string') })
  })
})

describe('a new project in another language', () => {
  const definitions = async (folder: string, file: string) =>
    parseAllDocuments(await readFile(join(folder, file), 'utf8')).map((one) => one.toJS() as { kind: string })

  it('has the definition and the rights that the function in TypeScript would have', async () => {
    const wanted = reconciler({
      name: 'website',
      for: Website,
      owns: [ConfigMap, Deployment],
      reconcile: () => undefined,
    })
    const folder = join(ROOT, 'packages/scaffold/templates/http')
    expect(await definitions(folder, 'deploy/crds.yaml')).toEqual(JSON.parse(JSON.stringify(definitionsOf([wanted]))))
    expect(await definitions(folder, 'deploy/rbac.yaml')).toEqual(
      JSON.parse(JSON.stringify(functionRbac(manifest(wanted)))),
    )
  })

  it.each([
    { template: 'http-python', test: 'python3 -m unittest', start: ['python3', 'server.py'], kind: 'Pysite' },
    {
      template: 'http-go',
      test: 'go vet ./... && go test ./... && go build -o server .',
      start: ['./server'],
      kind: 'Gosite',
    },
  ])('from $template: passes its tests, and is called by a dispatcher', { timeout: 600_000 }, async (row) => {
    const { template, test, start, kind } = row
    const [lower, project] = [kind.toLowerCase(), join(dir, template)]
    await fairlead(['new', template, '--template', template, '--kind', kind, '--group', 'sites.test'])
    await sh(test, project)
    const [program = '', ...args] = start
    const server = spawn(program, args, {
      cwd: project,
      env: { ...env(), PORT: '0' },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const ended = once(server, 'exit')
    try {
      const [line] = (await once(createInterface(server.stdout), 'line')) as [string]
      const url = `http://127.0.0.1:${/\d+$/.exec(line)?.[0]}`
      await fairlead(['install'])
      await kubectl(['apply', '-f', join(project, 'deploy/crds.yaml'), '-f', join(project, 'deploy/rbac.yaml')])
      const reconcilerFile = await readFile(join(project, 'deploy/reconciler.yaml'), 'utf8')
      await kubectl(['apply', '-f', '-'], reconcilerFile.replace(/url: .*/, `url: ${url}`))
      await kubectl(['wait', '--for=condition=Established', `crd/${lower}s.sites.test`])
      // The Deployment of the earlier project has the same name. The garbage collector looks for new kinds of owners every
      // 30 s.
      await kubectl(['wait', '--for=delete', 'deployment/hello', '--timeout=240s'])
      await kubectl(['apply', '-f', join(project, `examples/${lower}.yaml`)])
      await using _up = startFairlead(['up'], { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '' })
      await kubectl(['wait', '--for=condition=Ready', `${lower}/hello`, '--timeout=240s'])
      await kube.get(resourcePath(Deployment, 'default', 'hello'))
    } finally {
      server.kill('SIGKILL')
      await ended
      await kubectl(['delete', `reconciler/${lower}`, `${lower}/hello`, '--ignore-not-found', '--wait=false'])
    }
  })
})

describe('npm create fairlead', () => {
  it('names the Node.js that it needs, where there is an older one', async () => {
    const { create } = await packedPackage()
    const older = 'Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } })'
    const args = ['--import', `data:text/javascript,${older}`, join(create, 'create-main.js'), 'shops']
    await expect(run(process.execPath, args, { cwd: dir })).rejects.toMatchObject({
      code: 2,
      stderr: 'create-fairlead: Node.js 24.12 or newer is needed, and this is 20.20.2: install it\n',
    })
    expect(await readFile(join(create, 'README.md'), 'utf8')).toMatch(/^# create-fairlead\n/)
  })

  it('makes what fairlead new makes, of a package without dependencies', async () => {
    const { create } = await packedPackage()
    const manifest = JSON.parse(await readFile(join(create, 'package.json'), 'utf8')) as Record<string, unknown>
    expect(manifest).not.toHaveProperty('dependencies')
    const args = ['--kind', 'Shop', '--group', 'shops.test', '--fairlead', '1.2.3']
    const exec = ['exec', '--yes', '--cache', join(dir, 'npm'), '--package', create, '--', 'create-fairlead']
    const npm = (folder: string) => run('npm', [...exec, folder, ...args], { cwd: dir })
    await npm('created/shops')
    await fairlead(['new', 'by-command/shops', ...args])
    const made = async (folder: string) => {
      const paths = (await readdir(join(dir, folder), { recursive: true, withFileTypes: true })).filter((one) =>
        one.isFile(),
      )
      const texts = paths.map(
        async ({ parentPath, name }) => [name, await readFile(join(parentPath, name), 'utf8')] as const,
      )
      return Object.fromEntries(await Promise.all(texts))
    }
    expect(await made('created/shops')).toEqual(await made('by-command/shops'))
    await expect(npm('created/shops')).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringContaining('is not empty'),
    })
  })
})

describe('what is wrong', () => {
  it.each([
    [['new', 'node_modules'], 'is not empty'],
    [['new', 'a', '--kind', 'shop'], '"shop" is not a kind'],
    [['new', 'a', '--template', 'existing'], 'needs --crd'],
    [['new', 'a', '--crd', 'x.yaml'], '--crd is for --template existing'],
    [
      ['new', 'a', '--template', 'existing', '--crd', 'nowhere.example.com'],
      'has no CustomResourceDefinition of that name',
    ],
    [['new', 'kind', 'Shop'], 'has no src/index.ts'],
  ])('%j is said in one line, and leaves nothing behind', async (args, message) => {
    const before = await readdir(dir)
    const failed = fairlead(args)
    await expect(failed).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining(message) })
    expect(await readdir(dir)).toEqual(before)
  })
})
