import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { cacheDir, ensureBinaries, silentProgress } from '#lab'
import { addVolumes } from '../e2e/deployed.ts'
import { addNatsImage, nodeBase } from '../support/fairlead-images.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { packedPackage } from '../support/package.ts'
import { startTestCluster } from '../support/servers.ts'
import { until } from '../support/wait.ts'
import { PACKED_WITHIN_MS, ROOT } from './author.ts'
import { type Block, blocksOf } from './blocks.ts'

const TEMPLATE = join(ROOT, 'packages/scaffold/templates/resource/src/website.ts')
const WHOLE_PAGE_MS = 600_000

const turn = await takeTurnWithNode()
afterAll(turn.end)
/** Without a real node, no container serves the page, and none runs Fairlead. */
const ONLY_WITH_NODE = ['forward', 'package', 'cluster']

let cluster: Awaited<ReturnType<typeof startTestCluster>>
let kubectl: Kubectl
let home: string
/** The folder in which the reader is: the clone first. */
let cwd = ROOT
let env: Record<string, string | undefined>
const stack = new AsyncDisposableStack()

beforeAll(async () => {
  cluster = stack.use(await startTestCluster({ nats: true, controllers: true, node: turn.skip ? 'kwok' : 'real' }))
  kubectl = await kubectlFor(cluster)
  home = await mkdtemp(join(tmpdir(), 'fl-tutorial-'))
  stack.defer(() => rm(home, { recursive: true, force: true }))
  const programs = await ensureBinaries(['kubectl', 'helm'], silentProgress)
  const path = [dirname(process.execPath), ...['kubectl', 'helm'].map((name) => dirname(programs(name as 'helm')))]
  env = {
    ...process.env,
    PATH: [...path, process.env['PATH']].join(':'),
    KUBECONFIG: cluster.kubeconfig,
    NATS_URL: cluster.nats?.url,
    npm_config_prefer_offline: 'true',
    npm_config_audit: 'false',
    npm_config_fund: 'false',
    HELM_CONFIG_HOME: join(home, 'helm'),
    HELM_CACHE_HOME: join(home, 'helm'),
    HELM_DATA_HOME: join(home, 'helm'),
  }
}, PACKED_WITHIN_MS)
afterAll(() => stack.disposeAsync())

/** Runs the commands in the reader's folder, and returns all that they print. */
async function shell(script: string): Promise<string> {
  const place = join(home, 'cwd')
  const { stdout, stderr } = await promisify(execFile)('sh', ['-euc', `${script}\npwd > '${place}'`], {
    cwd,
    env,
  }).catch((error: Error & { stdout: string; stderr: string }) => {
    throw new Error(`${script}\n${error.stdout}\n${error.stderr}`, { cause: error })
  })
  cwd = (await readFile(place, 'utf8')).trim()
  return stdout + stderr
}

const fails = (script: string): Promise<string> =>
  shell(script).then(
    () => expect.fail(`this should fail: ${script}`),
    (error: Error) => error.message,
  )

/** Replaces the lines with - by those with +, as the reader does in an editor. */
async function edit(path: string, diff: string): Promise<void> {
  const side = (sign: string) =>
    diff
      .split('\n')
      .filter((line) => line.startsWith(sign))
      .map((line) => line.slice(1))
      .join('\n')
  const text = await readFile(join(cwd, path), 'utf8')
  expect(text.split(side('-')), `${path} has once: ${side('-')}`).toHaveLength(2)
  await writeFile(
    join(cwd, path),
    text.replace(side('-'), () => side('+')),
  )
}

it('the tutorial works as it is written', { timeout: WHOLE_PAGE_MS }, async () => {
  let dev: Awaited<ReturnType<typeof startDev>> | undefined
  let printed = ''
  const steps: Record<string, (block: Block) => unknown> = {
    'ts website.ts': async ({ text }) => {
      expect(text).toBe(await readFile(TEMPLATE, 'utf8'))
      expect(await readFile(join(cwd, 'src/website.ts'), 'utf8')).toBe(text)
    },
    'sh background': async ({ text }) => {
      expect(text).toBe('npm run dev\n')
      dev = await startDev()
    },
    'sh forward': ({ text }) => isForwarded(text.trim()),
    'sh fails': async ({ text }) => {
      printed = await fails(text)
    },
    'sh package': async () => {
      await acceptsLongNames()
      await refusesOtherTypes()
      await dev?.end()
      // The package that these commands make is made once for all tests.
      await shell(`npm install '${(await packedPackage()).tarball}'`)
      await addNatsImage(cluster.registryUrl ?? '')
      await addVolumes(cluster.dir, kubectl, 1)
    },
    'sh cluster': async ({ text }) => {
      printed = await shell(await onThisCluster(text))
    },
    'sh ': async ({ text }) => {
      // The test has servers of its own.
      if (!text.includes('local env'))
        printed = await shell(text.replaceAll('../my-operator', join(home, 'my-operator')))
    },
    'diff src/website.ts': ({ about, text }) => edit(about, text),
    'diff src/website.test.ts': ({ about, text }) => edit(about, text),
    'text ': ({ text }) => {
      for (const line of text.trim().split('\n')) expect(printed).toContain(line)
    },
  }
  for (const block of await blocksOf('tutorial')) {
    if (turn.skip && ONLY_WITH_NODE.includes(block.about)) continue
    const step = steps[`${block.language} ${block.about}`]
    expect(step, `the test knows \`\`\`${block.language} ${block.about}`).toBeDefined()
    await step?.(block)
  }
  if (turn.skip) {
    await acceptsLongNames()
    await refusesOtherTypes()
    await dev?.end()
  }
})

/** Runs the script of the project on the servers of this test. */
async function startDev() {
  const { scripts } = JSON.parse(await readFile(join(cwd, 'package.json'), 'utf8')) as { scripts: { dev: string } }
  const [program, ...args] = scripts.dev.split(' ')
  expect(program).toBe('fairlead')
  const servers = ['--kubeconfig', cluster.kubeconfig, '--nats', cluster.nats?.url ?? '']
  const bin = join(cwd, 'node_modules/.bin/fairlead')
  const child = spawn(bin, [...args, ...servers], { cwd, env, stdio: ['ignore', 'ignore', 'pipe'] })
  const lines: string[] = []
  createInterface(child.stderr).on('line', (line) => lines.push(line))
  const ended = once(child, 'exit')
  const end = async () => {
    child.kill('SIGINT')
    expect(await ended).toEqual([0, null])
  }
  stack.defer(() => void child.kill('SIGKILL'))
  await until(() => lines.includes('Website default/hello: Ready=True (Serving)'), {
    unless: () => {
      if (child.exitCode !== null) throw new Error(`npm run dev has ended: ${lines.join('\n')}`)
    },
  })
  expect(lines.join('\n')).toMatch(/^console: http:/m)
  return { end }
}

/** Opens the page through the forwarded port. */
async function isForwarded(command: string): Promise<void> {
  expect(command).toBe('kubectl port-forward service/hello 8080:80')
  // Another program of this machine may have the port.
  const child = spawn('sh', ['-c', `exec ${command.replace('8080:', ':')}`], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string]
  const [, port] = /127\.0\.0\.1:(\d+)/.exec(line) ?? []
  expect(await (await fetch(`http://127.0.0.1:${port}`)).text()).toBe('<h1>Hello</h1>')
  child.kill()
  await ended
}

/** The registry of this test, its base image, and the objects that `dev` has applied on the same cluster. */
async function onThisCluster(script: string): Promise<string> {
  const { host } = new URL(cluster.registryUrl ?? '')
  const platform = `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`
  const image = `--base '${await nodeBase(cacheDir())}' --platform ${platform} --plain-http`
  return script
    .replace('--push registry.example.com', `${image} --push ${host}`)
    .replaceAll('helm install', 'helm install --take-ownership --force-conflicts')
    .replace('--create-namespace', '--create-namespace --set bridge.replicas=1 --set dispatcher.replicas=1')
}

async function acceptsLongNames(): Promise<void> {
  const name = `my.${'very-long-'.repeat(20)}site`
  const site = { apiVersion: 'example.com/v1', kind: 'Website', metadata: { name }, spec: { html: 'hello' } }
  await kubectl(['apply', '-f', '-'], site)
  await kubectl(['wait', '--for=condition=Ready', `website/${name}`, '--timeout=60s'])
}

async function refusesOtherTypes(): Promise<void> {
  expect(await readFile(join(cwd, 'deploy/crds.yaml'), 'utf8')).toContain('websites.example.com')
  expect(await readFile(join(cwd, 'deploy/rbac.yaml'), 'utf8')).toContain('fairlead-website')
  const source = await readFile(join(cwd, 'src/website.ts'), 'utf8')
  await writeFile(join(cwd, 'src/website.ts'), source.replace('html: z.string().min(1)', 'html: z.int32()'))
  expect(await fails('npm run generate')).toContain('spec.html was string, and would be integer')
  await writeFile(join(cwd, 'src/website.ts'), source)
}
