import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, utimes, writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { listImage, makeImage, parseReference, Repository } from '#image'
import { openLayout } from '../../packages/image/base.ts'
import { command } from '../support/command.ts'
import { type ReceivedRequest, startHttpReceiver } from '../support/http-receiver.ts'
import { pushParts, smallBase, writeLayout, writeProject } from '../support/images.ts'
import { REGISTRY_USER, startRegistry, type TestRegistry } from '../support/registry.ts'

const run = promisify(execFile)
const PLATFORMS = ['linux/amd64', 'linux/arm64']

const stack = new AsyncDisposableStack()
let dir: string
let base: string
let project: string
let registries: Record<'none' | 'basic' | 'token', TestRegistry>

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-image-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  base = await writeLayout(join(dir, 'base'), await smallBase())
  project = await writeProject(join(dir, 'project'))
  const [none, basic, token] = await Promise.all([startRegistry(), startRegistry('basic'), startRegistry('token')])
  registries = { none, basic, token }
  for (const registry of Object.values(registries)) stack.use(registry)
  await mkdir(join(dir, 'empty'))
})
afterAll(() => stack.disposeAsync())

const options = () => ({ base, include: ['src'], platforms: PLATFORMS, env: { DOCKER_CONFIG: join(dir, 'empty') } })

/** The parts of an image in an archive, and the paths in its layers, for each platform. */
async function contentsOf(file: string) {
  const { root, read } = await openLayout(file).then((layout) => ({ ...layout, read: layout.read.bind(layout) }))
  const json = async <T>(part: { digest: string }) => JSON.parse((await read(part as never)).toString()) as T
  const index = JSON.parse(root.bytes.toString()) as { manifests: Part[]; annotations: Record<string, string> }
  const images = index.manifests.map(async (one) => {
    const manifest = await json<{ config: Part; layers: Part[] }>(one)
    const config = await json<ConfigFile>(manifest.config)
    const layers = await Promise.all(
      manifest.layers.map(async (layer) => ({ ...layer, bytes: await read(layer as never) })),
    )
    return { platform: one.platform, config, layers }
  })
  return { root, index, images: await Promise.all(images) }
}
interface Part {
  mediaType: string
  digest: string
  size: number
  platform?: object
}
interface ConfigFile {
  architecture: string
  config: Record<string, unknown>
  rootfs: { diff_ids: string[] }
}

async function pathsIn(layer: Buffer): Promise<string[]> {
  const file = join(dir, 'layer.tar')
  await writeFile(file, gunzipSync(layer))
  return (await run('tar', ['-tf', file])).stdout.trim().split('\n')
}

describe('the image of a project', () => {
  it('is the same bytes, whenever and wherever it is made', async () => {
    const [first, second] = [join(dir, 'first.tar'), join(dir, 'second.tar')]
    await makeImage(project, { ...options(), output: first })
    const copy = join(dir, 'copy')
    await cp(project, copy, { recursive: true })
    await utimes(join(copy, 'src/index.ts'), 1, 1)
    await chmod(join(copy, 'src'), 0o700)
    await chmod(join(copy, 'src/index.ts'), 0o600)
    await writeFile(join(copy, 'src/index.test.ts'), 'another test')
    await makeImage(copy, { ...options(), output: second })
    expect((await readFile(first)).equals(await readFile(second))).toBe(true)
  })

  it('is an index of both architectures, which share its two layers', async () => {
    const file = join(dir, 'shared.tar')
    await makeImage(project, { ...options(), output: file })
    const { images } = await contentsOf(file)
    expect(images.map(({ platform }) => platform)).toEqual(
      ['amd64', 'arm64'].map((architecture) => ({ os: 'linux', architecture })),
    )
    const [one, other] = images.map(({ layers }) => layers.map(({ digest }) => digest))
    expect(one).toHaveLength(3)
    expect(one?.slice(1)).toEqual(other?.slice(1))
    expect(one?.[0]).not.toBe(other?.[0])
    for (const { layers } of images)
      expect(layers.map(({ mediaType }) => mediaType.replace('application/vnd.oci.image.layer.v1.', ''))).toEqual([
        'tar',
        'tar+gzip',
        'tar+gzip',
      ])
  })

  it('starts fairlead as a user that is not root, with what the base has', async () => {
    const file = join(dir, 'config.tar')
    await makeImage(project, { ...options(), output: file, start: ['serve', '-f', 'src/index.ts'] })
    const { images, index } = await contentsOf(file)
    expect(images[0]?.config.config).toEqual({
      Env: ['PATH=/bin', 'NODE_ENV=production'],
      Entrypoint: ['/nodejs/bin/node', '--max-semi-space-size=4', '/app/node_modules/fairlead/cli/bin.js'],
      Cmd: ['serve', '-f', 'src/index.ts'],
      User: '65532:65532',
      WorkingDir: '/app',
      Labels: {
        'org.opencontainers.image.title': '@me/shops',
        'org.opencontainers.image.version': '1.2.0',
        'org.opencontainers.image.created': '1970-01-01T00:00:00Z',
      },
    })
    expect(index.annotations).toMatchObject({ 'org.opencontainers.image.base.digest': (await smallBase()).root.digest })
    expect(images[0]?.config.rootfs.diff_ids).toHaveLength(3)
  })

  it('has what the functions need, and neither tests, secrets nor what is for development', async () => {
    const file = join(dir, 'paths.tar')
    await makeImage(project, { ...options(), output: file })
    const [{ layers } = { layers: [] }] = (await contentsOf(file)).images
    expect(await pathsIn(layers[1]?.bytes as Buffer)).toEqual([
      'app/',
      'app/node_modules/',
      'app/node_modules/fairlead/',
      'app/node_modules/fairlead/cli/',
      'app/node_modules/fairlead/cli/bin.js',
      'app/node_modules/fairlead/cli/index.js',
      'app/node_modules/fairlead/node_modules/',
      'app/node_modules/fairlead/node_modules/@a/',
      'app/node_modules/fairlead/node_modules/@a/zod/',
      'app/node_modules/fairlead/node_modules/@a/zod/package.json',
      'app/node_modules/fairlead/package.json',
    ])
    expect(await pathsIn(layers[2]?.bytes as Buffer)).toEqual([
      'app/',
      'app/package.json',
      'app/src/',
      'app/src/index.ts',
    ])
  })

  it('has no Kubernetes client, which only commands on workstations load, unless the project depends on it', async () => {
    const client = '@kubernetes/client-node'
    const made = await writeProject(join(dir, 'with-client'))
    const fairlead = join(made, 'node_modules/fairlead/package.json')
    const write = (file: string, value: object) => writeFile(file, JSON.stringify(value))
    const read = async (file: string) => JSON.parse(await readFile(file, 'utf8')) as Record<string, object>
    await mkdir(join(made, 'node_modules', client), { recursive: true })
    await mkdir(join(made, 'node_modules/of-the-client'))
    const needs = { name: client, version: '2.0.1', dependencies: { 'of-the-client': '1.0.0' } }
    await write(join(made, 'node_modules', client, 'package.json'), needs)
    await write(join(made, 'node_modules/of-the-client/package.json'), { name: 'of-the-client', version: '1.0.0' })
    const { dependencies, ...rest } = await read(fairlead)
    await write(fairlead, { ...rest, dependencies: { ...dependencies, [client]: '2.0.1' } })
    const inImage = async () =>
      (await listImage(made, { include: ['src'], platforms: PLATFORMS })).entries.filter(({ path }) =>
        path.includes('client'),
      ).length
    expect(await inImage()).toBe(0)

    const manifest = await read(join(made, 'package.json'))
    await write(join(made, 'package.json'), {
      ...manifest,
      dependencies: { ...manifest['dependencies'], [client]: '2.0.1' },
    })
    expect(await inImage()).toBeGreaterThan(2)
  })

  it('has no type declarations and source maps of installed packages, which no program reads', async () => {
    const made = await writeProject(join(dir, 'with-types'))
    const folder = join(made, 'node_modules/fairlead/cli')
    for (const name of ['bin.d.ts', 'bin.d.mts', 'bin.js.map', 'map.js']) await writeFile(join(folder, name), '')
    await writeFile(join(made, 'src/own.d.ts'), '')
    const { entries } = await listImage(made, { include: ['src'], platforms: PLATFORMS })
    const paths = entries.map(({ path }) => path)
    expect(paths.filter((path) => /\.(d\.m?ts|map)$/.test(path))).toEqual(['app/src/own.d.ts'])
    expect(paths).toContain('app/node_modules/fairlead/cli/map.js')
  })

  it('of one whose packages are linked, as pnpm does it, has the links too', async () => {
    const linked = await writeProject(join(dir, 'linked'))
    const modules = join(linked, 'node_modules')
    await mkdir(join(modules, '.pnpm/fairlead@1/node_modules'), { recursive: true })
    await rm(join(modules, 'fairlead/node_modules'), { recursive: true })
    await cp(join(modules, 'fairlead'), join(modules, '.pnpm/fairlead@1/node_modules/fairlead'), { recursive: true })
    await rm(join(modules, 'fairlead'), { recursive: true })
    await symlink('.pnpm/fairlead@1/node_modules/fairlead', join(modules, 'fairlead'))
    const file = join(dir, 'linked.tar')
    await makeImage(linked, { ...options(), output: file })
    const [{ layers } = { layers: [] }] = (await contentsOf(file)).images
    const unpacked = join(dir, 'unpacked')
    await mkdir(unpacked)
    await writeFile(join(dir, 'linked-layer.tar'), gunzipSync(layers[1]?.bytes as Buffer))
    await run('tar', ['-xf', join(dir, 'linked-layer.tar'), '-C', unpacked])
    expect(await readFile(join(unpacked, 'app/node_modules/fairlead/cli/bin.js'), 'utf8')).toContain('node')
    expect(await readdir(join(unpacked, 'app/node_modules/@a/zod'))).toEqual(['package.json'])
  })

  const layersOf = async (file: string): Promise<string[]> => {
    const [{ layers } = { layers: [] }] = (await contentsOf(file)).images
    const paths: string[] = []
    for (const { mediaType, bytes } of layers) if (mediaType.endsWith('gzip')) paths.push(...(await pathsIn(bytes)))
    return paths.filter((path) => !path.endsWith('/'))
  }

  /** A package beside the project, linked as npm does it for a workspace. */
  const linkedTo = async (to: string, files: Record<string, string>): Promise<string> => {
    const linked = `${to}-linked`
    for (const [path, content] of Object.entries(files)) {
      await mkdir(dirname(join(linked, path)), { recursive: true })
      await writeFile(join(linked, path), content)
    }
    const manifest = JSON.stringify({ name: 'me', dependencies: { fairlead: '1', linked: '1' } })
    await writeProject(to, { 'package.json': manifest })
    await symlink(linked, join(to, 'node_modules/linked'))
    return linked
  }

  const SECRETS = [
    '.env',
    '.env.production',
    '.npmrc',
    '.netrc',
    '.docker/config.json',
    '.kube/config',
    '.ssh/known_hosts',
    'kubeconfig',
    'prod.kubeconfig',
    'kubeconfig-prod',
    'kubeconfig_test.yaml',
    'config/kubeconfig.yaml',
    'tls/server.pem',
    'tls/server.key',
    'keys/id_rsa',
    'keys/ID_ED25519',
    'credentials.json',
  ]
  const PUBLIC = [
    'index.js',
    'keys/id_rsa.pub',
    'kubeconfig.js',
    'kubeconfig-loader.js',
    'key.ts',
    'tls/ca.pem',
    'environment.js',
  ]
  const withSecrets = (folder: string): Record<string, string> => ({
    ...Object.fromEntries([...SECRETS, ...PUBLIC].map((path) => [join(folder, path), `-----BEGIN PRIVATE KEY-----`])),
    [join(folder, 'tls/ca.pem')]: '-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n',
  })

  it('has no credentials of included folders, linked packages and added folders, and names what it leaves out', async () => {
    const folder = join(dir, 'secrets')
    await linkedTo(folder, { 'package.json': '{"name":"linked","version":"1.0.0"}', ...withSecrets('') })
    await writeProject(folder, {
      'package.json': await readFile(join(folder, 'package.json'), 'utf8'),
      ...withSecrets('src'),
    })
    const output = join(dir, 'secrets.tar')
    const make = (...args: string[]) =>
      command(['image', folder, '--output', output, '--base', base, '--add', `${folder}-linked:/opt`, ...args])
    const { stderr, code } = await make()
    expect(code).toBe(0)
    const paths = await layersOf(output)
    for (const at of ['app/src/', 'app/node_modules/linked/', 'opt/']) {
      const found = paths.filter((path) => path.startsWith(at)).map((path) => path.slice(at.length))
      expect(found.filter((path) => !['index.ts', 'package.json'].includes(path)).sort()).toEqual([...PUBLIC].sort())
    }
    expect(stderr).toMatch(
      /left out, because .*app\/node_modules\/linked\/\.docker.* and \d+ more\. .*name it: --include FILE/,
    )
    const named = ['src/.env', 'src/tls/server.key', 'node_modules/linked/.npmrc']
    await make('--include', 'src', ...named.flatMap((path) => ['--include', path]))
    const more = await layersOf(output)
    expect(more.filter((path) => !paths.includes(path)).sort()).toEqual(named.map((path) => `app/${path}`).sort())
  })

  it('has no credentials of the whole project, and what its package names', async () => {
    const folder = join(dir, 'whole')
    await writeProject(folder, { '.npmrc': '//r.io/:_authToken=x', '.npmignore': 'notes\n', 'notes/a.md': 'x' })
    const output = join(dir, 'whole.tar')
    expect((await command(['image', folder, '--output', output, '--base', base, '--include', '.'])).code).toBe(0)
    const own = (await layersOf(output)).filter((path) => !path.includes('node_modules'))
    expect(own).toEqual(['app/.npmignore', 'app/package.json', 'app/src/index.ts'])
  })

  it.each<[string, object, Record<string, string>]>([
    ['no rule', {}, {}],
    ['files of folders and globs', { files: ['dist', 'lib/**/*.js', '/data/*.json', 'root.txt'] }, {}],
    [
      'files with an exception',
      { files: ['dist/', '!dist/sub', '!**/*.map'], main: 'lib/a.js', bin: { x: './bin/x.js' } },
      {},
    ],
    ['files of everything', { files: ['*'] }, {}],
    ['an .npmignore', {}, { '.npmignore': '# notes\n*.map\n/data\nlib/*.ts\n!lib/b.ts\nsub/\n\n' }],
    ['an .npmignore beside files', { files: ['dist', 'lib'] }, { '.npmignore': 'dist\n', 'lib/.npmignore': '*.ts\n' }],
    ['an .npmignore below', {}, { '.npmignore': '*.map', 'dist/.npmignore': '!a.js.map\nsub\n' }],
    ['an .npmignore with ** and ?', {}, { '.npmignore': 'dist/**/b.js\n**/?.ts\n[dx]ata\n' }],
  ])('has of a linked package what npm packs: %s', async (name, manifest, files) => {
    const folder = join(dir, `npm ${name}`)
    const paths = [
      'dist/a.js',
      'dist/a.js.map',
      'dist/sub/b.js',
      'lib/a.js',
      'lib/b.ts',
      'lib/deep/c.js',
      'data/x.json',
    ]
    const linked = await linkedTo(folder, {
      ...Object.fromEntries(
        [...paths, 'data/y.txt', 'bin/x.js', 'root.txt', 'README.md', 'LICENSE'].map((path) => [path, path]),
      ),
      ...files,
      'package.json': JSON.stringify({ name: 'linked', version: '1.0.0', ...manifest }),
    })
    const { stdout } = await run('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: linked })
    const [{ files: packed } = { files: [] }] = JSON.parse(stdout) as { files: { path: string }[] }[]
    const { stdout: list } = await command(['image', folder, '--list'])
    const at = 'app/node_modules/linked/'
    const listed = list.split('\n').flatMap((path) => (path.startsWith(at) ? [path.slice(at.length)] : []))
    // npm leaves out its own files.
    expect(listed.filter((path) => !path.endsWith('.npmignore')).sort()).toEqual(packed.map(({ path }) => path).sort())
  })

  it('--list prints what the image has, and makes nothing', async () => {
    const output = join(dir, 'listed.tar')
    const listed = await command(['image', project, '--list', '--output', output, '--base', '/nowhere'])
    expect(listed.code).toBe(0)
    expect(existsSync(output)).toBe(false)
    const made = await command(['image', project, '--output', output, '--base', base])
    expect(made.stderr).toMatch(/dependencies: 4 files, \d+ kB, .*\n.*functions: 2 files, \d+ kB, /)
    expect(listed.stdout.trim().split('\n')).toEqual(await layersOf(output))
  })

  it('has other files for each architecture, where they are added', async () => {
    for (const architecture of ['amd64', 'arm64'])
      await writeFile(join(dir, `tool-${architecture}`), architecture, { mode: 0o755 })
    const file = join(dir, 'added.tar')
    await makeImage(project, { ...options(), output: file, add: [`${dir}/tool-{arch}:/usr/local/bin/tool`] })
    const { images } = await contentsOf(file)
    for (const { layers, config } of images) {
      expect(layers).toHaveLength(4)
      expect(gunzipSync(layers[1]?.bytes as Buffer).toString()).toContain(config.architecture)
    }
  })

  it('has a bill of materials: its packages, their versions and licenses, and the base', async () => {
    await makeImage(project, { ...options(), output: join(dir, 'sbom.tar') })
    const { stdout: sbom } = await run('tar', ['-xOf', join(dir, 'sbom.tar'), 'sbom.spdx.json'])
    const { packages } = JSON.parse(sbom) as {
      packages: { name: string; versionInfo: string; licenseDeclared: string }[]
    }
    expect(packages.map(({ name, versionInfo, licenseDeclared }) => [name, versionInfo, licenseDeclared])).toEqual([
      ['@me/shops', '1.2.0', 'NOASSERTION'],
      ['base', (await smallBase()).root.digest, 'NOASSERTION'],
      ['fairlead', '1.0.0', 'Apache-2.0'],
      ['@a/zod', '4.0.0', 'MIT'],
    ])
  })
})

describe('in a registry', () => {
  const loggedIn = async (host: string, password = REGISTRY_USER.password) => {
    const folder = await mkdtemp(join(dir, 'docker-'))
    const auth = Buffer.from(`${REGISTRY_USER.username}:${password}`).toString('base64')
    await writeFile(join(folder, 'config.json'), JSON.stringify({ auths: { [host]: { auth } } }))
    return { DOCKER_CONFIG: folder }
  }

  it.each(['none', 'basic', 'token'] as const)(
    'that asks for %s: is what an archive has, by its digest',
    async (kind) => {
      const { host } = registries[kind]
      const env = await loggedIn(host)
      const { digest } = await makeImage(project, { ...options(), output: join(dir, `${kind}.tar`) })
      const made = await makeImage(project, { ...options(), push: `${host}/team/shops:1`, env })
      expect(made.reference).toBe(`${host}/team/shops@${digest}`)
      const repository = new Repository(parseReference(`${host}/team/shops`), { env })
      expect((await repository.manifest('1')).digest).toBe(digest)
      const { manifests } = JSON.parse((await repository.manifest(digest)).bytes.toString()) as { manifests: Part[] }
      for (const one of manifests) {
        const { layers } = JSON.parse((await repository.manifest(one.digest)).bytes.toString()) as { layers: Part[] }
        for (const layer of layers) expect(await repository.has(layer.digest)).toBe(true)
      }
      const referring = JSON.parse((await repository.manifest(digest.replace(':', '-'))).bytes.toString()) as {
        manifests: { artifactType: string; digest: string }[]
      }
      expect(referring.manifests.map(({ artifactType }) => artifactType)).toEqual(['application/spdx+json'])
      const again = await makeImage(project, { ...options(), push: `${host}/team/shops:2`, env })
      expect(again.digest).toBe(digest)
    },
  )

  it.each(['basic', 'token'] as const)('that asks for %s: says to log in to who has not, or wrongly', async (kind) => {
    const { host } = registries[kind]
    const push = makeImage(project, { ...options(), push: `${host}/team/other:1` })
    await expect(push).rejects.toThrow(new RegExp(`${host} .*40[13].*log in to it.*docker login ${host}`))
    const env = await loggedIn(host, 'wrong')
    const wrong = makeImage(project, { ...options(), push: `${host}/team/other:1`, env })
    await expect(wrong).rejects.toThrow('docker login')
  })

  it('takes its base from there, by its digest, and says which one a tag has', async () => {
    const { host } = registries.none
    const repository = new Repository(parseReference(`${host}/bases/node`), { actions: 'pull,push' })
    const digest = await pushParts(await smallBase(), repository, '24')
    const made = await makeImage(project, {
      ...options(),
      base: `${host}/bases/node:24@${digest}`,
      push: `${host}/a/b:1`,
    })
    const there = new Repository(parseReference(`${host}/a/b`))
    const index = JSON.parse((await there.manifest(made.digest)).bytes.toString()) as { annotations: object }
    expect(index.annotations).toMatchObject({
      'org.opencontainers.image.base.name': `${host}/bases/node:24`,
      'org.opencontainers.image.base.digest': digest,
    })
    const tagged = makeImage(project, { ...options(), base: `${host}/bases/node:24`, push: `${host}/a/b:1` })
    await expect(tagged).rejects.toThrow(
      `has no digest, and its tag can be moved: give ${host}/bases/node:24@${digest}`,
    )
  })

  it('takes its base from another one', async () => {
    const repository = new Repository(parseReference(`${registries.none.host}/bases/far`), { actions: 'pull,push' })
    const digest = await pushParts(await smallBase(), repository, '24')
    const { host } = registries.token
    const env = await loggedIn(host)
    const near = `${registries.none.host}/bases/far@${digest}`
    const made = await makeImage(project, { ...options(), base: near, push: `${host}/team/far:1`, env })
    expect(made.reference).toContain('/team/far@sha256:')
  })
})

describe('a base in a registry', () => {
  it.each([
    [
      'has no address',
      () => `nowhere.invalid/bases/node@sha256:${'0'.repeat(64)}`,
      'registry nowhere.invalid cannot be reached',
    ],
    [
      'refuses connections',
      () => `127.0.0.1:1/bases/node@sha256:${'0'.repeat(64)}`,
      'registry 127.0.0.1:1 cannot be reached',
    ],
    ['has not got it', () => `${registries.none.host}/bases/none@sha256:${'0'.repeat(64)}`, '404'],
    ['asks who one is', () => `${registries.basic.host}/bases/none@sha256:${'0'.repeat(64)}`, 'docker login'],
  ])('that %s: the error says how to do without it', async (_, from, message) => {
    const args = ['image', project, '--output', join(dir, 'x.tar'), '--base', from()]
    const { code, stderr } = await command(args, { DOCKER_CONFIG: join(dir, 'empty') })
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(message) })
    expect(stderr).toMatch(/^fairlead: the base image cannot be read: .*; give --base an OCI layout[^\n]*\n$/)
  })

  it('that is silent: a line says how to do without it, and the answer still counts', async () => {
    const { host } = registries.none
    const repository = new Repository(parseReference(`${host}/bases/slow`), { actions: 'pull,push' })
    const digest = await pushParts(await smallBase(), repository, '24')
    const warned = Promise.withResolvers<string>()
    const forward = async ({ method, url, headers: { accept = '' } }: ReceivedRequest, response: ServerResponse) => {
      await warned.promise
      const answer = await fetch(`http://${host}${url}`, { method, headers: { accept } })
      response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' })
      response.end(Buffer.from(await answer.arrayBuffer()))
    }
    await using slow = await startHttpReceiver((request, response) => void forward(request, response))
    const from = `${slow.url.replace('http://', '')}/bases/slow@${digest}`
    const warn = vi.fn((line: string) => warned.resolve(line))
    const made = await makeImage(project, { ...options(), base: from, output: join(dir, 'slow.tar'), warn })
    expect(warn.mock.calls).toEqual([[expect.stringMatching(/does not answer yet.*--base an OCI layout/)]])
    const near = await makeImage(project, {
      ...options(),
      base: `${host}/bases/slow@${digest}`,
      output: join(dir, 'near.tar'),
    })
    expect(made.layers).toEqual(near.layers)
  })
})

describe('what is wrong is said in one line', () => {
  const image = (args: string[]) => command(['image', ...args], { DOCKER_CONFIG: join(dir, 'empty') })

  it.each<[string, (folder: string) => Promise<string[]> | string[], RegExp | string, number]>([
    ['no place', () => [project], 'give a destination', 2],
    ['a bad reference', () => [project, '--push', 'Shops'], '"Shops" is not a reference of an image', 2],
    ['a digest to push to', () => [project, '--push', `r.io/a@sha256:${'0'.repeat(64)}`], 'name a tag', 2],
    [
      'a registry that is away',
      () => [project, '--push', '127.0.0.1:1/a:1'],
      'registry 127.0.0.1:1 cannot be reached',
      1,
    ],
    [
      'a platform that is none',
      () => [project, '--output', `${dir}/x.tar`, '--platform', 'amd64'],
      'write it like linux/amd64',
      2,
    ],
    [
      'a platform without a base',
      () => [project, '--output', `${dir}/x.tar`, '--platform', 'linux/s390x'],
      /no image for linux\/s390x, but for linux\/amd64, linux\/arm64/,
      2,
    ],
    [
      'a path that is not there',
      () => [project, '--output', `${dir}/x.tar`, '--include', 'lib'],
      'has no lib: name what the functions are in',
      2,
    ],
    ['a path outside', () => [project, '--output', `${dir}/x.tar`, '--include', '../x'], 'is outside of', 2],
    ['no project', () => [join(dir, 'empty'), '--output', `${dir}/x.tar`], 'has no package.json', 2],
    [
      'no fairlead',
      async (folder) => [await writeProject(folder, { 'package.json': '{}' }), '--output', `${dir}/x.tar`],
      'has no dependency on fairlead',
      2,
    ],
    [
      'dependencies that are not installed',
      async (folder) => [
        await writeProject(folder, { 'package.json': '{"dependencies":{"fairlead":"1","left-pad":"1"}}' }),
        '--output',
        `${dir}/x.tar`,
      ],
      'left-pad, which',
      2,
    ],
    [
      'machine code',
      async (folder) => [
        await writeProject(folder, { 'node_modules/fairlead/a.node': '' }),
        '--output',
        `${dir}/x.tar`,
      ],
      'a.node is machine code of this platform',
      2,
    ],
    [
      'a clone',
      async (folder) => {
        const clone = await writeProject(folder)
        await rm(join(clone, 'node_modules/fairlead/cli/index.js'))
        return [clone, '--output', `${dir}/x.tar`]
      },
      'is not compiled',
      2,
    ],
  ])('%s', async (name, args, message, code) => {
    const given = await args(join(dir, `wrong ${name}`))
    const withBase = given.includes('--base') ? given : [...given, '--base', base]
    const { stderr, code: exit } = await image(withBase)
    expect(stderr).toMatch(message)
    expect(stderr.trim().split('\n')).toHaveLength(1)
    expect(exit).toBe(code)
  })

  it('a base that is no image, or not what its digests say', async () => {
    const broken = await writeLayout(join(dir, 'broken'), await smallBase())
    await writeFile(join(broken, 'blobs', (await smallBase()).blobs[0]?.digest.replace(':', '/') ?? ''), 'changed')
    const made = makeImage(project, { ...options(), base: broken, output: join(dir, 'x.tar') })
    await expect(made).rejects.toThrow('has contents that do not match its digest')
    await writeFile(join(dir, 'no.tar'), 'x'.repeat(2048))
    const none = makeImage(project, { ...options(), base: join(dir, 'no.tar'), output: join(dir, 'x.tar') })
    await expect(none).rejects.toThrow('is not an OCI image layout')
    expect(await readdir(dir)).not.toContain('x.tar')
    expect(await readdir(dir)).not.toContain('x.tar.part')
  })
})
