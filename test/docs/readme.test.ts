import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { apiServerBinaries, cacheDir, ensureBinaries, silentProgress } from '#lab'
import { startTestCluster } from '../support/servers.ts'
import { until } from '../support/wait.ts'
import { ROOT } from './author.ts'
import { type Block, blocksOf } from './blocks.ts'

const EXAMPLE = join(ROOT, 'docs/examples/website')

let home: string
let env: Record<string, string>
let blocks: Block[]
const stack = new AsyncDisposableStack()

beforeAll(async () => {
  blocks = await blocksOf('../README')
  const cluster = stack.use(await startTestCluster({ controllers: true, node: 'kwok' }))
  home = await mkdtemp(join(tmpdir(), 'fl-readme-'))
  stack.defer(() => rm(home, { recursive: true, force: true }))
  await mkdir(join(home, '.kube'))
  await copyFile(cluster.kubeconfig, join(home, '.kube/config'))
  const kubectl = dirname((await ensureBinaries(['kubectl'], silentProgress))('kubectl'))
  // In a clone, npx finds the command of the clone itself.
  await writeFile(join(home, 'npx'), `#!/bin/sh\nshift\nexec "${process.execPath}" "${ROOT}/cli/bin.js" "$@"\n`)
  await chmod(join(home, 'npx'), 0o755)
  const path = [home, kubectl, dirname(process.execPath), process.env['PATH']].join(':')
  env = { HOME: home, PATH: path, FAIRLEAD_CACHE: cacheDir() }
})
afterAll(() => stack.disposeAsync())

const shell = async (script: string) =>
  (
    await promisify(execFile)('sh', ['-euc', script.replaceAll('../my-operator', join(home, 'my-operator'))], {
      cwd: ROOT,
      env,
    })
  ).stdout

const commandsOf = (about: string) =>
  blocks
    .filter((block) => block.language === 'sh' && block.about === about)
    .flatMap(({ text }) => text.trim().split('\n'))

it('the README shows the function and the object of its example', async () => {
  const shown = (name: string) => blocks.find(({ about }) => about === name)?.text
  const source = await readFile(join(EXAMPLE, 'website.ts'), 'utf8')
  expect(shown('website.ts')).toBe(source.slice(source.indexOf('export const website =')))
  expect(shown('hello.yaml')).toBe(await readFile(join(EXAMPLE, 'hello.yaml'), 'utf8'))
})

it('the package and the site have the same description as the README', async () => {
  const tagline = (await readFile(join(ROOT, 'README.md'), 'utf8')).split('\n')[2]?.replace(/\.$/, '') ?? ''
  for (const file of ['package.json', 'packages/site/.vitepress/config.js'])
    expect(await readFile(join(ROOT, file), 'utf8')).toContain(tagline)
  expect(tagline).toContain('Kubernetes')
})

it('the commands of the README work in a clone, with the output that it shows', async () => {
  const [install, start = ''] = commandsOf('background')
  expect(install).toBe('npm ci')
  const dev = spawn('sh', ['-c', `exec ${start}`], { cwd: ROOT, env, stdio: ['ignore', 'ignore', 'pipe'] })
  stack.defer(async () => {
    const ended = once(dev, 'exit')
    dev.kill('SIGINT')
    expect(await ended).toEqual([0, null])
  })
  const said: string[] = []
  createInterface({ input: dev.stderr }).on('line', (line) => said.push(line))
  const url = () => said.join('\n').match(/NATS_URL=(\S+),/)?.[1]
  await until(() => url() !== undefined || dev.exitCode !== null)
  // Another nats-server of this machine may have the port at which the commands look by default.
  env['NATS_URL'] = url() ?? said.join('\n')

  const [, shown = ''] = blocks.find(({ language }) => language === 'text')?.text.match(/^\$ .*\n([\s\S]*)$/) ?? []
  const words = (text: string) =>
    text
      .replaceAll(/\b\d+s\b/g, 'AGE')
      .replaceAll(/ +/g, ' ')
      .trim()
  const [look = '', explain = '', create = '', ...others] = commandsOf('')
  expect(others).toEqual([])
  await until(async () => {
    expect(words(await shell(look))).toBe(words(shown))
  })
  expect(await shell(explain)).toContain('Website default/hello is healthy: Ready (Serving).')
  expect(await shell(create)).toContain('npm install')
})

it('the demo of the README runs by the programs of KUBEBUILDER_ASSETS, and builds nothing', async () => {
  const assets = join(home, 'assets')
  await mkdir(assets)
  const pathOf = await ensureBinaries(apiServerBinaries, silentProgress)
  for (const name of apiServerBinaries) await symlink(pathOf(name), join(assets, name))
  const [demo = ''] = commandsOf('assets')
  const own = { ...env, NATS_URL: '', KUBEBUILDER_ASSETS: assets }
  const { stdout, stderr } = await promisify(execFile)('sh', ['-euc', demo], { cwd: ROOT, env: own })
  expect(stderr).toContain('taken from KUBEBUILDER_ASSETS, and not built: etcd')
  expect(stderr).not.toContain('building')
  expect(stdout).toContain('\nDONE: one object, one pod')
})
