import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { cacheDir } from '#lab'
import { version } from '#process/version'
import { buildFuncPack } from '../../../packages/release/publish.ts'
import { command } from '../../support/command.ts'
import { addFairleadImages, nodeBase } from '../../support/fairlead-images.ts'
import { createFrom, funcTemplates } from '../../support/func-pack.ts'
import { type Kubectl, kubectlFor } from '../../support/kubectl.ts'
import { takeTurnWithNode } from '../../support/node.ts'
import { packedPackage } from '../../support/package.ts'
import { deployFairlead, installCertificates } from '../deployed.ts'
import { at, startWorld, until, untilPhase, type World } from '../world.ts'
import { Ingress } from './ingress.ts'
import { INGRESS_DOMAIN, installServing } from './serving.ts'

const FUNCTIONS = 'fairlead-functions'
/** The least that Serving takes. */
const IDLE_SECONDS = 6

const checkout = process.env['FAIRLEAD_KNATIVE']
const turn = checkout ? await takeTurnWithNode() : { skip: true, end: () => {} }
afterAll(turn.end)

describe.skipIf(turn.skip)('a function on Knative Serving, FAIRLEAD_KNATIVE=<a checkout of it>', () => {
  let world: World
  let kubectl: Kubectl
  let ingress: Ingress

  beforeAll(async () => {
    world = await startWorld({ node: 'real', controllers: true, nats: false })
    kubectl = await kubectlFor(world.cluster)
    const registryUrl = world.cluster.registryUrl!
    await addFairleadImages(registryUrl, cacheDir(process.env))
    ingress = await Ingress.start(world.kube, INGRESS_DOMAIN)
    await installServing(
      { checkout: checkout!, registryUrl, ingressPort: ingress.port, idleSeconds: IDLE_SECONDS },
      kubectl,
    )
    void ingress.follow()
    await kubectl(['create', 'namespace', FUNCTIONS])
    const { stdout } = await command(['generate', 'knative', 'at', '--image', 'fairlead:latest'], world.env)
    await kubectl(['apply', '-f', '-'], withoutRetention(stdout))
    await kubectl(['-n', FUNCTIONS, 'wait', '--for=condition=Ready', 'ksvc/at', '--timeout=240s'])
    await installCertificates(world)
    await deployFairlead(world, kubectl)
  }, 900_000)

  afterAll(async () => {
    await ingress?.[Symbol.asyncDispose]()
    await world?.[Symbol.asyncDispose]()
  })

  const pods = () => kubectl(['-n', FUNCTIONS, 'get', 'pods', '-o', 'name'])
  const done = (name: string) => untilPhase(kubectl, 'DONE', name)

  it('has no pod while nothing is to be done', async () => {
    await until(async () => (await pods()) === '')
  })

  it('is started by a change, and decides there', async () => {
    await world.create(at('first', new Date()))
    await done('first')
    expect(await pods()).toContain('pod/at-00001-deployment')
  })

  it('is reached all the same when one of three NATS servers is lost with all that it kept', async () => {
    await kubectl(['-n', 'fairlead-system', 'scale', 'statefulset/fairlead-nats', '--replicas=2'])
    await kubectl(['-n', 'fairlead-system', 'wait', '--for=delete', 'pod/fairlead-nats-2', '--timeout=240s'])
    await rm(join(world.cluster.dir, 'jetstream-2/jetstream'), { recursive: true })
    await world.create(at('meanwhile', new Date()))
    await done('meanwhile')
    await kubectl(['-n', 'fairlead-system', 'scale', 'statefulset/fairlead-nats', '--replicas=3'])
    await kubectl(['-n', 'fairlead-system', 'rollout', 'status', 'statefulset/fairlead-nats', '--timeout=240s'])
  })

  it('is gone again while an At waits for its time, and started by that', async () => {
    await world.create(at('later', new Date(Date.now() + 75_000)))
    await untilPhase(kubectl, 'PENDING', 'later')
    await until(async () => (await pods()) === '')
    expect((await world.ats()).find(({ metadata }) => metadata.name === 'later')?.status?.phase).toBe('PENDING')
    await untilPhase(kubectl, 'DONE', 'later')
  })

  it('may be a project of func, with an image by fairlead image', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'fl-func-'))
    const folder = join(dir, 'sites')
    try {
      const [template] = await funcTemplates(await buildFuncPack(join(dir, 'pack'), version))
      await createFrom(template!, folder)
      await writeFile(join(folder, 'package.json'), await withPackage(join(folder, 'package.json')))
      await promisify(execFile)('npm', ['install', '--omit=dev', '--prefer-offline', '--no-audit'], { cwd: folder })
      const registry = new URL(world.cluster.registryUrl!).host
      const args = ['--platform', `linux/${ARCHITECTURE}`, '--base', await nodeBase(cacheDir())]
      const start = ['--start', 'serve -f src/index.ts', '--plain-http']
      const image = await command(['image', folder, ...args, ...start, '--push', `${registry}/library/sites:1`])
      expect(image).toMatchObject({ code: 0 })
      await kubectl(['apply', '-f', '-'], serviceOf('sites', template!.config.healthEndpoints))
      await kubectl(['-n', FUNCTIONS, 'wait', '--for=condition=Ready', 'ksvc/sites', '--timeout=240s'])
      const url = `http://sites.${FUNCTIONS}.svc.cluster.local`
      const installed = await command(['install', '-f', join(folder, 'src/index.ts'), '--url', url], world.env)
      expect(installed).toMatchObject({ code: 0 })
      await kubectl(['apply', '-f', join(folder, 'examples')])
      await kubectl(['wait', '--for=condition=Ready', 'website/hello', '--timeout=240s'])
    } finally {
      await rm(dir, { recursive: true, force: true })
    }
  }, 600_000)
})

const ARCHITECTURE = process.arch === 'x64' ? 'amd64' : process.arch

/** The package that is to be published, in place of the one that is. */
async function withPackage(file: string): Promise<string> {
  const manifest = JSON.parse(await readFile(file, 'utf8')) as object
  return JSON.stringify({ ...manifest, dependencies: { fairlead: `file:${(await packedPackage()).tarball}` } })
}

/** As \`func deploy --build=false\` makes it: no command and no arguments, the probes of the template. */
const serviceOf = (name: string, { liveness, readiness }: { liveness?: string; readiness?: string } = {}) => ({
  apiVersion: 'serving.knative.dev/v1',
  kind: 'Service',
  metadata: { name, namespace: FUNCTIONS },
  spec: {
    template: {
      spec: {
        containers: [
          {
            name: 'user-container',
            image: `${name}:1`,
            livenessProbe: { httpGet: { path: liveness, port: 8080 } },
            readinessProbe: { httpGet: { path: readiness, port: 8080 } },
            securityContext: {
              allowPrivilegeEscalation: false,
              capabilities: { drop: ['ALL'] },
              runAsNonRoot: true,
              seccompProfile: { type: 'RuntimeDefault' },
            },
          },
        ],
      },
    },
  },
})

/** As it is generated, but for how long the last pod is kept for the next change. */
const withoutRetention = (manifests: string): string =>
  manifests.replace('scale-to-zero-pod-retention-period: 1m', 'scale-to-zero-pod-retention-period: "0s"')
