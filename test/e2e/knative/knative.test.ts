import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { cacheDir } from '#local'
import { command } from '../../support/command.ts'
import { addFairleadImages } from '../../support/fairlead-images.ts'
import { type Kubectl, kubectlFor } from '../../support/kubectl.ts'
import { takeTurnWithNode } from '../../support/node.ts'
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
    await kubectl(['-n', FUNCTIONS, 'wait', '--for=condition=Ready', 'ksvc/at', '--timeout=120s'])
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
  }, 120_000)

  it('is started by a change, and decides there', async () => {
    await world.create(at('first', new Date()))
    await done('first')
    expect(await pods()).toContain('pod/at-00001-deployment')
  })

  it('is reached all the same when one of three NATS servers is lost with all that it kept', async () => {
    await kubectl(['-n', 'fairlead-system', 'scale', 'statefulset/fairlead-nats', '--replicas=2'])
    await kubectl(['-n', 'fairlead-system', 'wait', '--for=delete', 'pod/fairlead-nats-2', '--timeout=50s'])
    await rm(join(world.cluster.dir, 'jetstream-2/jetstream'), { recursive: true })
    await world.create(at('meanwhile', new Date()))
    await done('meanwhile')
    await kubectl(['-n', 'fairlead-system', 'scale', 'statefulset/fairlead-nats', '--replicas=3'])
    await kubectl(['-n', 'fairlead-system', 'rollout', 'status', 'statefulset/fairlead-nats', '--timeout=50s'])
  }, 120_000)

  it('is gone again while an At waits for its time, and started by that', async () => {
    await world.create(at('later', new Date(Date.now() + 75_000)))
    await untilPhase(kubectl, 'PENDING', 'later')
    await until(async () => (await pods()) === '')
    expect((await world.ats()).find(({ metadata }) => metadata.name === 'later')?.status?.phase).toBe('PENDING')
    await untilPhase(kubectl, 'DONE', 'later', 90)
  }, 180_000)
})

/** As it is generated, but for how long the last pod is kept for the next change. */
const withoutRetention = (manifests: string): string =>
  manifests.replace('scale-to-zero-pod-retention-period: 1m', 'scale-to-zero-pod-retention-period: "0s"')
