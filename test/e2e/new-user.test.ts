import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { cacheDir, clusterStatus, stopCluster } from '#lab'
import { stopWithThisProcess } from '../../packages/lab/reaper.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { addNatsImage, nodeBase } from '../support/fairlead-images.ts'
import { type Helm, helmIn, SYSTEM, TAKE_OVER } from '../support/helm.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { PACKED_WITHIN_MS, type PackedPackage, packedPackage } from '../support/package.ts'
import { shortTempDir } from '../support/servers.ts'
import { addVolumes, isReady, PARTS } from './deployed.ts'
import { until } from './world.ts'

const turn = await takeTurnWithNode()
afterAll(turn.end)

const WHOLE_PATH_MS = 600_000
const MODULE = 'src/index.ts'

/** What the user writes while the function runs: pages have a title. */
const TITLE: Edit[] = [
  ['src/shop.ts', "'index.html': spec.html", "'index.html': `<title>Shop</title>${spec.html}`"],
  ['src/shop.test.ts', "'bye')", "'<title>Shop</title>bye')"],
]
/** The next version: a shop opens at a time. */
const OPENS: Edit[] = [
  ['src/shop.ts', '    replicas: z.int32()', '    opens: z.string().optional(),\n    replicas: z.int32()'],
  ['src/shop.ts', 'spec }, owned })', 'spec }, owned, now })'],
  [
    'src/shop.ts',
    '    const name =',
    '    const opens = new Date(spec.opens ?? 0)\n    const isOpen = now >= opens\n    const name =',
  ],
  ['src/shop.ts', 'replicas: spec.replicas', 'replicas: isOpen ? spec.replicas : 0'],
  ['src/shop.ts', '      status: { ready },', '      status: { ready },\n      ...(!isOpen && { requeueAt: opens }),'],
]
type Edit = [path: string, from: string, to: string]

describe.skipIf(turn.skip)('a new user, with the packages as they are published', () => {
  const stack = new AsyncDisposableStack()
  const took: string[] = []
  let made: PackedPackage
  let dir: string
  let clusterDir: string
  let base: string

  beforeAll(async () => {
    made = await packedPackage()
    base = await nodeBase(cacheDir())
    dir = await mkdtemp(join(tmpdir(), 'fl-user-'))
    stack.defer(() => rm(dir, { recursive: true, force: true }))
    clusterDir = await shortTempDir()
    const reaper = stopWithThisProcess(clusterDir, { removeDir: true })
    stack.defer(async () => {
      await stopCluster(clusterDir, { removeDir: true })
      reaper.release()
    })
  }, PACKED_WITHIN_MS)
  afterAll(async () => {
    await stack.disposeAsync()
    console.log(`The path of a new user:\n${took.join('\n')}`)
  })

  const project = () => join(dir, 'shops')
  /** npm needs these where a proxy has certificates of its own. */
  const { NODE_EXTRA_CA_CERTS } = process.env
  const certificates: Record<string, string> = NODE_EXTRA_CA_CERTS === undefined ? {} : { NODE_EXTRA_CA_CERTS }
  const env = () => ({
    HOME: process.env['HOME'] ?? '',
    PATH: [join(project(), 'node_modules/.bin'), dirname(process.execPath), process.env['PATH']].join(':'),
    ...certificates,
    KUBECONFIG: join(clusterDir, 'kubeconfig'),
    npm_config_prefer_offline: 'true',
    npm_config_audit: 'false',
    npm_config_fund: 'false',
  })
  /** What a terminal would show as the result. */
  const shell = async (script: string, cwd = project()): Promise<string> => {
    const ran = promisify(execFile)('sh', ['-euc', script], { cwd, env: env(), maxBuffer: 2 ** 26 })
    const { stdout } = await ran.catch((error: Error & { stdout: string; stderr: string }) => {
      throw new Error(`${script}\n${error.stdout}\n${error.stderr}`, { cause: error })
    })
    return stdout.trim()
  }
  const step = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
    const began = performance.now()
    const given = await work().catch((cause: Error) => {
      throw new Error(`${what}: ${cause.message}`, { cause })
    })
    took.push(`${((performance.now() - began) / 1000).toFixed(1).padStart(6)} s  ${what}`)
    return given
  }
  const edit = async (edits: Edit[]): Promise<void> => {
    for (const [path, from, to] of edits) {
      const text = await readFile(join(project(), path), 'utf8')
      expect(text).toContain(from)
      await writeFile(join(project(), path), text.replace(from, to))
    }
  }

  /** The script `dev`, on a cluster of its own instead of the user's. */
  async function startDev(): Promise<FairleadProcess> {
    const { scripts } = JSON.parse(await readFile(join(project(), 'package.json'), 'utf8')) as {
      scripts: { dev: string }
    }
    expect(scripts.dev).toBe(`fairlead dev -f ${MODULE} --apply examples`)
    const args = ['dev', '-f', join(project(), MODULE), '--apply', join(project(), 'examples'), '--dir', clusterDir]
    return startFairlead(args, env(), join(project(), 'node_modules/fairlead/cli/bin.js'))
  }

  it('comes from an empty folder to an operator on a cluster, upgrades it and removes it', {
    timeout: WHOLE_PATH_MS,
  }, async () => {
    await step('npm create fairlead', async () => {
      const says = await shell(
        `npm exec --yes --cache "${dir}/npm" --package "${made.create}" -- create-fairlead shops --kind Shop --group shops.test --fairlead "file:${made.tarball}"`,
        dir,
      )
      expect(says).toContain('npm install')
    })
    await step('npm install', () => shell('npm install'))
    await step('npm run check, npm test', () => shell('npm run check && npm test'))

    const dev = await step('npm run dev: a cluster starts, and the example is ready', async () => {
      const started = stack.use(await startDev())
      await started.logged(({ msg }) => /Shop default\/hello: Ready=True/.test(msg))
      return started
    })
    const kubectl = await kubectlFor({ kubeconfig: env().KUBECONFIG })
    const page = async (title: string, name = 'hello') => {
      const wait = (what: string) => kubectl(['wait', `--for=${what}`, `configmap/${name}`, '--timeout=60s'])
      await wait('create')
      await wait(`jsonpath={.data.index\\.html}=${title}<h1>Hello</h1>`)
    }
    await step('a change of the function, seen in the cluster', async () => {
      await page('')
      await edit(TITLE)
      await page('<title>Shop</title>')
    })
    await step('npm test again, npm run generate, end of dev', async () => {
      await shell('npm test && npm run generate')
      dev.kill('SIGINT')
      expect(await dev.exited).toMatchObject({ code: 0 })
    })

    const { registryUrl = '' } = clusterStatus(clusterDir).state ?? {}
    const push = (version: number) =>
      shell(
        `fairlead image --base "${base}" --platform linux/${process.arch === 'x64' ? 'amd64' : process.arch} --push ${new URL(registryUrl).host}/team/shops:${version} --plain-http`,
      )
    const helm = await helmIn(dir, env().KUBECONFIG)
    const image = await step('fairlead image', () => push(1))
    await step('helm install: Fairlead, and the chart of the functions', async () => {
      await addNatsImage(registryUrl)
      await addVolumes(clusterDir, kubectl, 1)
      await release(helm, kubectl, 'install', image)
    })
    await step('an object is reconciled by pods that the restricted standard admits', async () => {
      const refused = kubectl(['-n', 'fairlead-system', 'run', 'loose', '--image=busybox'])
      await expect(refused).rejects.toThrow('violates PodSecurity "restricted')
      await kubectl(['create', '-f', '-'], shop('by-pods'))
      await kubectl(['wait', '--for=condition=Ready', 'shop/by-pods', '--timeout=60s'])
    })

    await step('the console shows people what they may see', async () => {
      await kubectl(['-n', 'fairlead-system', 'rollout', 'status', 'deployment/fairlead-console', '--timeout=90s'])
      for (const name of ['viewer', 'stranger']) await kubectl(['create', 'serviceaccount', name])
      await kubectl(['create', 'role', 'viewer', '--verb=get', '--resource=shops.shops.test'])
      await kubectl(['create', 'rolebinding', 'viewer', '--role=viewer', '--serviceaccount=default:viewer'])
      const seenBy = async (name: string) => {
        const token = (await kubectl(['create', 'token', name])).trim()
        const pod = ['-n', 'fairlead-system', 'exec', 'deployment/fairlead-console', '--']
        return kubectl([...pod, 'node', '-e', GET_PAGE, '/objects/shop/default/by-pods', token])
      }
      await until(async () => /^200 .*healthy/s.test(await seenBy('viewer')))
      expect(await seenBy('stranger')).toMatch(/^404 .*may not get Shop by-pods/s)
    })

    await step('another version of the function: npm test, fairlead image, helm upgrade', async () => {
      await edit(OPENS)
      await shell('npm run check && npm test && npm run generate')
      await release(helm, kubectl, 'upgrade', await push(2))
    })
    await step('neither timer nor change is lost when all pods are gone at once', async () => {
      const opens = new Date(Date.now() + 8000)
      await kubectl(['create', '-f', '-'], shop('later', { opens: opens.toISOString() }))
      const replicas = (count: number) => [
        'wait',
        `--for=jsonpath={.spec.replicas}=${count}`,
        'deployment/later',
        '--timeout=60s',
      ]
      await kubectl(['wait', '--for=create', 'deployment/later', '--timeout=60s'])
      await kubectl(replicas(0))
      // Not by force: a nats-server must have ended before another one has its volume.
      await kubectl(['-n', 'fairlead-system', 'delete', 'pod', '--all', '--grace-period=1'])
      await kubectl(['create', '-f', '-'], shop('meanwhile'))
      await page('<title>Shop</title>', 'meanwhile')
      await kubectl(replicas(1))
      expect(Date.now()).toBeGreaterThan(opens.getTime())
      for (const part of PARTS.slice(1))
        expect(await kubectl(['-n', 'fairlead-system', 'logs', part, '--all-pods'])).not.toContain('refuses')
    })

    await step('uninstall: nothing is left, and no namespace hangs', async () => {
      await kubectl(['delete', 'shops', '--all', '--timeout=60s'])
      for (const name of ['shops', 'fairlead']) await helm(['uninstall', name, ...SYSTEM])
      await shell(`fairlead uninstall -f ${MODULE} --crds`)
      await kubectl(['delete', 'namespace', 'fairlead-system', '--timeout=90s'])
      const left = await kubectl(['get', 'clusterroles,clusterrolebindings,crds,namespaces', '-o', 'name'])
      // The local cluster has roles of its own: fairlead:coredns.
      expect(left.split('\n').filter((name) => /fairlead(?!:)|shops/.test(name))).toEqual([])
      await until(async () => (await kubectl(['get', 'deployments', '-o', 'name'])) === '')
    })
    await step('fairlead local down', async () => {
      expect(await shell(`fairlead local down --dir ${clusterDir}`)).toMatch(/^stopped \d+ processes/)
    })
  })

  /** Fairlead and the functions, by the charts of the package and of the project. */
  async function release(helm: Helm, kubectl: Kubectl, verb: 'install' | 'upgrade', image: string): Promise<void> {
    const [, repository = '', digest = ''] = /^(.+)@(sha256:.+)$/.exec(image) ?? []
    await shell(
      `fairlead generate chart -f ${MODULE} --to chart --name shops --image ${image} --module ${MODULE} --chart-version 0.${verb === 'install' ? 1 : 2}.0`,
    )
    const values = {
      'image.repository': repository,
      'image.digest': digest,
      'dispatcher.functions': `{${MODULE}}`,
      'bridge.replicas': '1',
      'dispatcher.replicas': '1',
      'console.enabled': 'true',
    }
    const sets = Object.entries(values).flatMap(([name, value]) => ['--set', `${name}=${value}`])
    const chart = join(project(), 'node_modules/fairlead/deploy/chart/fairlead')
    // `fairlead dev` has applied the same objects.
    const how = [...SYSTEM, '--timeout', '90s', ...(verb === 'install' ? TAKE_OVER : ['--force-conflicts'])]
    await helm([verb, 'fairlead', chart, ...how, ...sets])
    await helm([verb, 'shops', join(project(), 'chart'), ...how])
    await isReady(kubectl)
  }
})

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

const shop = (name: string, spec: object = {}): object => ({
  apiVersion: 'shops.test/v1',
  kind: 'Shop',
  metadata: { name, namespace: 'default' },
  spec: { html: '<h1>Hello</h1>', ...spec },
})
