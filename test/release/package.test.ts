import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { replaceLinks } from '../../packages/release/documents.ts'
import { headingsOf, slugOf } from '../docs/links.ts'
import { smallBase, writeLayout } from '../support/images.ts'
import { nodeProgram } from '../support/node-program.ts'
import { agentProject, PACKED_WITHIN_MS, type PackedPackage, packedPackage } from '../support/package.ts'

const run = promisify(execFile)

let made: PackedPackage
let dir: string

beforeAll(async () => {
  made = await packedPackage()
  dir = await mkdtemp(join(tmpdir(), 'fl-package-'))
}, PACKED_WITHIN_MS)
afterAll(() => rm(dir, { recursive: true, force: true }))

const ROOT = join(import.meta.dirname, '../..')
const node = (args: string[], cwd: string) =>
  run(process.execPath, args, { cwd, maxBuffer: 2 ** 26, env: { ...process.env, PATH: pathTo(process.execPath) } })
const pathTo = (program: string): string => `${dirname(program)}:${process.env['PATH']}`

/** A function for the compiler: a Deployment must have the type of Kubernetes. */
const FUNCTION = `import { Deployment, reconciler, resource, z } from 'fairlead'
export const Site = resource({
  group: 'example.com', version: 'v1', kind: 'Site', plural: 'sites',
  spec: z.object({ replicas: z.int32() }), status: z.object({ ready: z.int32() }),
})
export const site = reconciler({
  name: 'site', for: Site, owns: [Deployment],
  reconcile({ owned }) {
    const ready: number = owned(Deployment)[0]?.status?.readyReplicas ?? 0
    // @ts-expect-error a number, by the model of Kubernetes
    const name: string = owned(Deployment)[0]?.spec?.replicas
    return { apply: [], status: { ready: name === '' ? 0 : ready } }
  },
})
`
const TEST = `import { equal } from 'node:assert/strict'
import { test } from 'node:test'
import { outcomeOf } from 'fairlead/testing'
import { Site, site } from './site.ts'
test('none is ready', async () => {
  const object = Site.of({ metadata: { name: 'a' }, spec: { replicas: 1 } })
  equal((await outcomeOf(site, { object })).status?.ready, 0)
})
`
/** Prints the help of each command: node -e … INDEX COMMAND… */
const HELP = `
const [, index, ...paths] = process.argv
const { main } = await import(index)
for (const path of paths) await main(['node', 'fairlead', ...path.split(' '), '--help'])
`
interface Manifest {
  workspaces: string[]
  dependencies: Record<string, string>
  exports: Record<string, unknown>
}
const manifestIn = async (folder: string): Promise<Manifest> =>
  JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as Manifest

/** What attw finds. The package is for ECMAScript modules; it has no door for require() of old. */
interface Problem {
  kind: string
  resolutionKind?: string
  resolutionOption?: string
}

const PROJECT = {
  compilerOptions: {
    target: 'esnext',
    module: 'nodenext',
    strict: true,
    noEmit: true,
    allowImportingTsExtensions: true,
    exactOptionalPropertyTypes: true,
    types: [],
    skipLibCheck: true,
  },
  include: ['site.ts'],
}

/** A picture of a page, and a line of HTML with one. */
const PICTURE = /(?:src(?:set)?="|!\[[^\]]*\]\()([^")]+)/g

describe('the package', () => {
  it('has the documents, whose links lead to its own files and headings, and at most 3.6 MB', async () => {
    const { stdout } = await run('tar', ['-tzf', made.tarball], { maxBuffer: 2 ** 26 })
    const files = stdout
      .trim()
      .split('\n')
      .map((path) => path.replace(/^package\//, ''))
    const isThere = (path: string) => files.includes(path) || files.some((file) => file.startsWith(`${path}/`))
    const pages = files.filter((path) => path.endsWith('.md') && !path.startsWith('packages/scaffold/templates/'))
    expect(pages).toEqual(expect.arrayContaining(['README.md', 'docs/deploy.md', 'docs/functions.md', 'CHANGELOG.md']))
    const read = async (page: string) => [page, await readFile(join(made.folder, page), 'utf8')] as const
    const texts = new Map(await Promise.all(pages.map(read)))
    const lost: string[] = []
    for (const [page, text] of texts) {
      for (const [, picture = ''] of text.matchAll(PICTURE))
        if (!isThere(join(dirname(page), picture))) lost.push(`${page}: ${picture}`)
      replaceLinks(page, text, ({ path, anchor }, source) => {
        if (path === undefined) return source
        const headings = anchor === '' || !path.endsWith('.md') ? undefined : headingsOf(texts.get(path) ?? '')
        if (!isThere(path) || headings?.map(slugOf).includes(anchor) === false) lost.push(`${page}: ${source}`)
        return source
      })
    }
    expect(lost).toEqual([])
    expect((await stat(made.tarball)).size).toBeLessThan(3.6e6)
  })

  it('installs at most 170 packages and 130 MB, and needs no script of an installation', async () => {
    const lock = await readFile(join(made.installed, 'package-lock.json'), 'utf8')
    const { packages } = JSON.parse(lock) as { packages: Record<string, { hasInstallScript?: boolean }> }
    const installed = Object.entries(packages).filter(([path]) => path !== '')
    expect(installed.length).toBeLessThanOrEqual(170)
    const scripted = installed.filter(([, { hasInstallScript }]) => hasInstallScript === true).map(([path]) => path)
    // It prints a warning about versions. The package was installed without scripts.
    expect(scripted).toEqual(['node_modules/protobufjs'])
    expect(await bytesIn(join(made.installed, 'node_modules'))).toBeLessThan(130e6)
  })

  it('brings what its workspaces need, and has none of the doors that they use', async () => {
    const { workspaces, dependencies: own } = await manifestIn(ROOT)
    const { dependencies, exports } = await manifestIn(made.folder)
    const needed = await Promise.all(workspaces.map((folder) => manifestIn(join(ROOT, folder))))
    const { fairlead: _, ...all } = Object.assign({ ...own }, ...needed.map((one) => one.dependencies))
    expect(dependencies).toEqual(all)
    expect(Object.keys(exports).filter((door) => door.includes('internal'))).toEqual([])
  })

  it('has doors that tools resolve, with their types', async () => {
    const publint = await nodeProgram('publint@0.3.25', 'src/cli.js')
    const { stdout } = await node(
      [publint, 'run', made.folder, '--strict', '--level', 'warning', '--pack', 'false'],
      dir,
    )
    expect(stdout).toContain('All good')
    const attw = await nodeProgram('@arethetypeswrong/cli@0.18.5', 'dist/index.js')
    // Its exit code counts what the profile ignores; in a pipe its answer is cut off.
    const answer = join(dir, 'attw.json')
    const script = `"$0" "$@" > '${answer}' || true`
    await run('sh', ['-c', script, process.execPath, attw, made.tarball, '--format', 'json'], { cwd: dir })
    const { analysis } = JSON.parse(await readFile(answer, 'utf8')) as { analysis: { problems: Problem[] } }
    const isForModules = ({ resolutionKind = '', resolutionOption = '' }: Problem) =>
      !['node10', 'node16-cjs'].includes(resolutionKind) && resolutionOption !== 'node10'
    expect(analysis.problems.filter(isForModules)).toEqual([])
  })

  it('has commands that explain themselves', async () => {
    const folder = join(made.installed, 'node_modules/fairlead/cli')
    const { stdout: script } = await node([join(folder, 'bin.js'), 'completion', 'bash'], made.installed)
    const paths = [...script.matchAll(/^ {4}'([a-z]+(?: [a-z]+)?)'\)/gm)].map(([, path = '']) => path)
    expect(paths).toEqual(expect.arrayContaining(['up', 'dev', 'events get', 'queue ls']))
    // All in one process: each start takes a second.
    const help = ['--input-type=module', '--eval', HELP, join(folder, 'index.js'), ...paths]
    const { stdout } = await node(help, made.installed)
    expect(stdout.match(/^Usage: .*$/gm)).toEqual(paths.map((path) => expect.stringContaining(`fairlead ${path}`)))
  })

  it('makes an image of the agent, which has the clients of object stores, unlike its own image', async () => {
    const list = async (project: string) => {
      const command = join(project, 'node_modules/fairlead/cli/bin.js')
      return (await node([command, 'image', project, '--include', 'package.json', '--list'], dir)).stdout
    }
    const [own, agent] = [await list(made.installed), await list(await agentProject())]
    for (const name of ['@aws-sdk/client-s3', '@azure/storage-blob', '@azure/identity', 'google-auth-library']) {
      expect(agent).toContain(`node_modules/${name}/package.json`)
      expect(own).not.toContain(`node_modules/${name}/`)
    }
  })

  it('says which client of an object store to install', async () => {
    const args = ['etcd-agent', 'verify', '--store', 's3', '--path', 'bucket/key']
    const failed = node([join(made.installed, 'node_modules/fairlead/cli/bin.js'), ...args], dir)
    await expect(failed).rejects.toMatchObject({
      code: 1,
      stderr:
        'fairlead: @aws-sdk/client-s3 not found: use the image fairlead-etcd-agent, or npm install @aws-sdk/client-s3\n',
    })
  })

  it('makes an image of itself, of 10 MB above the base', async () => {
    const base = await writeLayout(join(dir, 'base'), await smallBase())
    const command = join(made.installed, 'node_modules/fairlead/cli/bin.js')
    const args = ['image', made.installed, '--include', 'package.json', '--base', base]
    const { stdout } = await node([command, ...args, '--output', join(dir, 'image.tar')], dir)
    expect(stdout).toMatch(/^sha256:[0-9a-f]{64}\n$/)
    expect((await stat(join(dir, 'image.tar'))).size).toBeLessThan(10e6)
  })

  it('names in its declarations what it brings along', async () => {
    const { dependencies } = await manifestIn(made.folder)
    const known = [...Object.keys(dependencies), '@nats-io/nats-core']
    const strangers = new Set<string>()
    for (const path of await reachable(['sdk/index.d.ts', 'sdk/testing/index.d.ts', 'sdk/testing/cluster/index.d.ts']))
      for (const [, name = ''] of (await readFile(path, 'utf8')).replace(COMMENTS, '').matchAll(IMPORT))
        if (!/^[.#]|^node:/.test(name) && !known.includes(packageOf(name))) strangers.add(name)
    expect([...strangers]).toEqual([])
  })

  it('says which Node.js it needs to one that is too old', async () => {
    const old = join(dir, 'old')
    await mkdir(old)
    await cp(join(made.folder, 'cli'), join(old, 'cli'), { recursive: true })
    await writeFile(join(old, 'package.json'), '{ "type": "module" }')
    const preload = `data:text/javascript,Object.defineProperty(process.versions, 'node', { value: '20.19.0' })`
    const failed = node(['--import', preload, join(old, 'cli/bin.js'), '--version'], dir)
    await expect(failed).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining('24.12 or newer') })
  })
})

/** Beside npm, which test/docs/tutorial.test.ts uses. */
const MANAGERS: { name: string; install: (tarball: string) => Promise<string[]>; files?: Record<string, string> }[] = [
  {
    name: 'pnpm',
    install: async (tarball) => [
      process.execPath,
      await nodeProgram('pnpm@10.34.9', 'bin/pnpm.cjs'),
      'add',
      '--prefer-offline',
      tarball,
    ],
  },
  {
    name: 'Yarn',
    install: async (tarball) => [
      process.execPath,
      await nodeProgram('@yarnpkg/cli-dist@4.18.1', 'bin/yarn.js'),
      'add',
      `fairlead@file:${tarball}`,
    ],
    files: { '.yarnrc.yml': 'nodeLinker: node-modules\nenableTelemetry: false\n', 'yarn.lock': '' },
  },
]

describe.each(MANAGERS)('installed by $name in an empty folder', ({ name, install, files = {} }) => {
  let project: string
  const fairlead = (args: string[]) => node([join(project, 'node_modules/fairlead/cli/bin.js'), ...args], project)

  beforeAll(async () => {
    project = join(dir, name)
    await mkdir(project)
    const source = { 'site.ts': FUNCTION, 'site.test.ts': TEST, 'tsconfig.json': JSON.stringify(PROJECT) }
    const manifest = { 'package.json': '{ "name": "my-operator", "type": "module" }' }
    for (const [path, text] of Object.entries({ ...source, ...manifest, ...files }))
      await writeFile(join(project, path), text)
    const [program = '', ...args] = await install(made.tarball)
    await run(program, args, {
      cwd: project,
      maxBuffer: 2 ** 26,
      env: { ...process.env, ...(await ofYarn()), CI: '1' },
    })
  })

  it('a function compiles with the types of Kubernetes, and its tests pass without a cluster', async () => {
    await node([join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', '.'], project)
    await node(['--test', 'site.test.ts'], project)
  })

  it('the command runs, and generates the definition of a kind', async () => {
    const { stdout } = await fairlead(['generate', 'crds', '-f', 'site.ts'])
    expect(stdout).toContain('name: sites.example.com')
  })
})

/** Yarn does not read the registry and the authorities that npm is configured with. */
async function ofYarn(): Promise<Record<string, string>> {
  const config = async (name: string) => (await run('npm', ['config', 'get', name])).stdout.trim()
  const [registry, authorities] = await Promise.all([config('registry'), config('cafile')])
  return {
    YARN_NPM_REGISTRY_SERVER: registry.replace(/\/$/, ''),
    ...(authorities.startsWith('/') && { YARN_HTTPS_CA_FILE_PATH: authorities }),
  }
}

/** Their examples import the package itself. */
const COMMENTS = /\/\*\*[\s\S]*?\*\//g
const IMPORT = /(?:from |import\()['"]([^'"]+)['"]/g
const packageOf = (name: string): string =>
  name
    .split('/')
    .slice(0, name.startsWith('@') ? 2 : 1)
    .join('/')

/** The declarations that a user's compiler reads for these. */
async function reachable(doors: string[]): Promise<Set<string>> {
  const { imports } = JSON.parse(await readFile(join(made.folder, 'package.json'), 'utf8')) as {
    imports: Record<string, string>
  }
  const found = new Set<string>()
  const follow = async (path: string): Promise<void> => {
    if (found.has(path)) return
    found.add(path)
    for (const [, name = ''] of (await readFile(path, 'utf8')).replace(COMMENTS, '').matchAll(IMPORT)) {
      const [, part] = /^#process\/(.+)$/.exec(name) ?? []
      const room = part === undefined ? imports[name] : imports['#process/*']?.replace('*', part)
      const target = room === undefined ? join(dirname(path), name) : join(made.folder, room)
      if (/^[.#]/.test(name)) await follow(target.replace(/\.js$/, '.d.ts'))
    }
  }
  for (const door of doors) await follow(join(made.folder, door))
  return found
}

async function bytesIn(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile())
  const sizes = await Promise.all(
    files.map(async ({ parentPath, name }) => (await readFile(join(parentPath, name))).length),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}
