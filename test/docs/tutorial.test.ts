import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { cacheDir, ensureBinaries, silentProgress } from '#lab'
import { addVolumes, isReady, PARTS } from '../e2e/deployed.ts'
import { addNatsImage, nodeBase } from '../support/fairlead-images.ts'
import { helmIn, SYSTEM } from '../support/helm.ts'
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

/** The reader's machine is not as busy as that of a test may be. */
const patient = (script: string): string => script.replaceAll(/--timeout=\d+s/g, '--timeout=240s')

/** Runs the commands in the reader's folder, and returns all that they print. */
async function shell(script: string): Promise<string> {
  const place = join(home, 'cwd')
  const { stdout, stderr } = await promisify(execFile)('sh', ['-euc', `${patient(script)}\npwd > '${place}'`], {
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

/** The lines with - and those with + of a difference. */
const sidesOf = (diff: string): string[] =>
  ['-', '+'].map((sign) =>
    diff
      .split('\n')
      .filter((line) => line.startsWith(sign))
      .map((line) => line.slice(1))
      .join('\n'),
  )

/** Replaces text, as the reader does in an editor. */
async function edit(path: string, [from = '', to = '']: readonly string[]): Promise<void> {
  const text = await readFile(join(cwd, path), 'utf8')
  expect(text.split(from), `${path} has once: ${from}`).toHaveLength(2)
  await writeFile(
    join(cwd, path),
    text.replace(from, () => to),
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
    'diff src/website.ts': ({ about, text }) => edit(about, sidesOf(text)),
    'diff src/website.test.ts': ({ about, text }) => edit(about, sidesOf(text)),
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

/** Another version of the tutorial's function: a site opens at a time. */
const OPENS = [
  ['    replicas: z.int32()', '    opens: z.string().optional(),\n    replicas: z.int32()'],
  ['spec }, owned })', 'spec }, owned, now })'],
  [
    '    const name =',
    '    const opens = new Date(spec.opens ?? 0)\n    const isOpen = now >= opens\n    const name =',
  ],
  ['replicas: spec.replicas', 'replicas: isOpen ? spec.replicas : 0'],
  ['      status: { ready },', '      status: { ready },\n      ...(!isOpen && { requeueAt: opens }),'],
] as const

it.skipIf(turn.skip)(
  'its installation is upgraded, loses nothing with all its pods, and is removed',
  {
    timeout: WHOLE_PAGE_MS,
  },
  async () => {
    const helm = await helmIn(home, cluster.kubeconfig)
    const system = SYSTEM.join(' ')
    await expect(kubectl([...SYSTEM, 'run', 'loose', '--image=busybox'])).rejects.toThrow(
      'violates PodSecurity "restricted',
    )

    for (const sides of OPENS) await edit('src/website.ts', sides)
    await shell('npm run check && npm test && npm run generate')
    const deployed = (await blocksOf('tutorial')).find(({ about }) => about === 'cluster')?.text ?? ''
    const [push = '', chart = ''] = (await onThisCluster(deployed)).split('\n')
    const how = `${system} --timeout 240s --force-conflicts --reuse-values --set image.repository=\${IMAGE%@*} --set image.digest=\${IMAGE#*@}`
    const platform = 'fairlead node_modules/fairlead/deploy/chart/fairlead --set console.enabled=true'
    const upgrades = [platform, 'my-operator chart'].map((release) => `helm upgrade ${release} ${how}`)
    await shell([push.replace(':1)', ':2)'), `${chart} --chart-version 0.2.0`, ...upgrades].join('\n'))
    await isReady(kubectl)
    await isShownByConsole()

    // Long enough to see it closed; pods that end and start take as long.
    const opens = new Date(Date.now() + 20_000)
    await kubectl(['create', '-f', '-'], site('later', { opens: opens.toISOString() }))
    const replicas = (count: number) =>
      kubectl(['wait', `--for=jsonpath={.spec.replicas}=${count}`, 'deployment/later', '--timeout=240s'])
    await kubectl(['wait', '--for=create', 'deployment/later', '--timeout=240s'])
    await replicas(0)
    // Not by force: a nats-server must have ended before another one has its volume.
    await kubectl([...SYSTEM, 'delete', 'pod', '--all', '--grace-period=1'])
    await kubectl(['create', '-f', '-'], site('meanwhile'))
    await kubectl(['wait', '--for=create', 'configmap/meanwhile', '--timeout=240s'])
    await replicas(1)
    expect(Date.now()).toBeGreaterThan(opens.getTime())
    for (const part of PARTS.slice(1))
      expect(await kubectl([...SYSTEM, 'logs', part, '--all-pods'])).not.toContain('refuses')

    await kubectl(['delete', 'websites', '--all', '--timeout=240s'])
    for (const name of ['my-operator', 'fairlead']) await helm(['uninstall', name, ...SYSTEM])
    for (const of of ['-f src/index.ts', '']) await shell(`npx fairlead uninstall ${of} --crds`)
    await kubectl(['delete', 'namespace', 'fairlead-system', '--timeout=240s'])
    const left = await kubectl(['get', 'clusterroles,clusterrolebindings,crds,namespaces', '-o', 'name'])
    // The local cluster has roles of its own: fairlead:coredns.
    expect(left.split('\n').filter((name) => /fairlead(?!:)|website/.test(name))).toEqual([])
    await until(async () => (await kubectl(['get', 'deployments', '-o', 'name'])) === '')
  },
)

const site = (name: string, spec: object = {}): object => ({
  apiVersion: 'example.com/v1',
  kind: 'Website',
  metadata: { name, namespace: 'default' },
  spec: { html: '<h1>Hello</h1>', ...spec },
})

/** A person who may read Websites sees one in the console, and a stranger does not. */
async function isShownByConsole(): Promise<void> {
  await kubectl([...SYSTEM, 'rollout', 'status', 'deployment/fairlead-console', '--timeout=240s'])
  for (const name of ['viewer', 'stranger']) await kubectl(['create', 'serviceaccount', name])
  await kubectl(['create', 'role', 'viewer', '--verb=get', '--resource=websites.example.com'])
  await kubectl(['create', 'rolebinding', 'viewer', '--role=viewer', '--serviceaccount=default:viewer'])
  const seenBy = async (name: string) => {
    const token = (await kubectl(['create', 'token', name])).trim()
    const pod = [...SYSTEM, 'exec', 'deployment/fairlead-console', '--']
    return kubectl([...pod, 'node', '-e', GET_PAGE, '/objects/website/default/hello', token])
  }
  await until(async () => /^200 .*healthy/s.test(await seenBy('viewer')))
  expect(await seenBy('stranger')).toMatch(/^404 .*may not get Website hello/s)
}

/** Prints status and text of a page of the console, in its pod: node -e … PATH TOKEN. */
const GET_PAGE = `
  const [, path, token] = process.argv
  const ca = require('node:fs').readFileSync('/etc/console-tls/ca.crt')
  const options = { host: 'localhost', port: 8090, path, ca, headers: { authorization: 'Bearer ' + token } }
  require('node:https').get(options, async (answer) => {
    let text = ''
    for await (const chunk of answer) text += chunk
    console.log(answer.statusCode, text)
  })`

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
  await kubectl(['wait', '--for=condition=Ready', `website/${name}`, '--timeout=240s'])
}

async function refusesOtherTypes(): Promise<void> {
  expect(await readFile(join(cwd, 'deploy/crds.yaml'), 'utf8')).toContain('websites.example.com')
  expect(await readFile(join(cwd, 'deploy/rbac.yaml'), 'utf8')).toContain('fairlead-website')
  const source = await readFile(join(cwd, 'src/website.ts'), 'utf8')
  await writeFile(join(cwd, 'src/website.ts'), source.replace('html: z.string().min(1)', 'html: z.int32()'))
  expect(await fails('npm run generate')).toContain('spec.html was string, and would be integer')
  await writeFile(join(cwd, 'src/website.ts'), source)
}
