import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { stringify } from 'yaml'
import { declareRuns, declareUsage, openDeadLetters, openEventStore } from '#events'
import { accountsIn } from '#install'
import { createKubeClient, type KubeClient, loadKubeConfig } from '#kube'
import type { JetStream } from '#nats'
import { openQueue } from '#queue'
import { createPlace, statusOfPlace } from '../cli/places.ts'
import { object, PODS } from '../events/objects.ts'
import { kubeconfigOf } from '../support/account.ts'
import { command } from '../support/command.ts'
import { type DeployedNats, startDeployedNats } from '../support/deployed-nats.ts'
import { startFairlead } from '../support/fairlead.ts'
import { startTestCluster } from '../support/servers.ts'
import { shippedAccounts } from '../support/shipped-users.ts'
import { silent as log } from '../support/silent.ts'

const STREAMS = ['EVENTS', 'WORK', 'DEAD', 'RUNS', 'USAGE']
const MODULE = fileURLToPath(new URL('../cli/clusters-function.ts', import.meta.url))
/** One name begins with the other, as the streams of a shard do. */
const [A, B] = ['east', 'east-b'] as const

let deployed: DeployedNats
beforeAll(async () => {
  deployed = await startDeployedNats({ clusters: [A, B, 'spoke'] })
})
afterAll(() => deployed?.[Symbol.asyncDispose]())

/** The streams of a cluster, made by its own bridge, with an object, a key and a dead letter. */
async function filled(cluster: string): Promise<JetStream> {
  const bridge = await deployed.connect(`fairlead-bridge.${cluster}`, 'test')
  const at = { prefix: cluster, cluster, log }
  await openDeadLetters(bridge, at)
  await declareRuns(bridge, { prefix: cluster, replicas: 1, raiseReplicas: true })
  await declareUsage(bridge, { prefix: cluster, replicas: 1, raiseReplicas: true })
  const events = await openEventStore(bridge, at)
  await events.put(PODS, 'added', object('web', 1, { namespace: 'shop' }))
  const queue = await openQueue(bridge, at)
  await queue.declare('at')
  await queue.enqueue('at', 'shop.web')
  return bridge
}

const stateOf = (js: JetStream, cluster: string) =>
  Promise.all(
    STREAMS.map(async (stream) => {
      const { state, config } = await js.admin.streams.info(`${cluster}_${stream}`)
      return {
        config,
        messages: state.messages,
        first: state.first_seq,
        last: state.last_seq,
        consumers: state.consumer_count,
      }
    }),
  )

const ROLES = ['bridge', 'dispatcher', 'inspect', 'operate', 'console', 'console-writes'] as const

describe('the users of a cluster', () => {
  it('are what the command prints, beside those of the installation', async () => {
    const { stdout } = await command(['generate', 'nats-users', '--cluster-users', `${A},${B}`], {})
    expect(accountsIn(stdout)).toEqual(shippedAccounts([''], [], [A, B]))
    expect(await command(['generate', 'nats-users', '--cluster-users', 'east.*'], {})).toMatchObject({ code: 2 })
  })

  it('read, store, take, change and delete nothing of another cluster, also when its name begins with theirs', async () => {
    await using a = await filled(A)
    await using b = await filled(B)
    for (const [own, other, ofOther] of [
      [A, B, b],
      [B, A, a],
    ] as const) {
      const before = await stateOf(ofOther, other)
      for (const role of ROLES) {
        await using js = await deployed.connect(`fairlead-${role}.${own}`, 'test')
        const heard: string[] = []
        for (const subject of ['>', `${other}.>`, '_INBOX.>'])
          js.nc.subscribe(subject, { callback: (error, { subject: at }) => void (error ?? heard.push(at)) })
        await tryAll(js, own, other)
        // It sees its own streams, and has done all before.
        expect(await js.lastSequence(`${own}_WORK`)).toBeGreaterThan(0)
        await ofOther.flush()
        expect({ role, heard: heard.filter((subject) => subject.startsWith(other)) }).toEqual({ role, heard: [] })
        const read = await Promise.allSettled([
          js.admin.streams.info(`${other}_EVENTS`),
          js.lastSequence(`${other}_WORK`),
        ])
        expect(read.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
        expect({ role, state: await stateOf(ofOther, other) }).toEqual({ role, state: before })
      }
    }
  })
})

/** Tries all that would change streams of the other cluster: by requests, and by the subjects of answers to its own requests. */
async function tryAll({ nc }: JetStream, own: string, other: string): Promise<void> {
  const subjects = [
    'k8s._.v1.pods.shop._.forged',
    'cursor._',
    'dead.at.x.y',
    'runs.at.shop.a',
    'work.at.high.shop.c',
    'key.at.r.shop.c.x',
  ]
  for (const subject of subjects.map((one) => `${other}.${one}`)) {
    nc.publish(subject, '')
    for (const api of ['$JS.API', 'FAIRLEAD.API']) {
      nc.publish(`${api}.STREAM.INFO.${own}_WORK`, '', { reply: subject })
      nc.publish(`${api}.DIRECT.GET.${own}_EVENTS`, JSON.stringify({ batch: 9, next_by_subj: `${own}.k8s.>` }), {
        reply: subject,
      })
      const config = { deliver_subject: subject, ack_policy: 'none' }
      nc.publish(`${api}.CONSUMER.CREATE.${own}_EVENTS`, JSON.stringify({ stream_name: `${own}_EVENTS`, config }))
    }
    nc.publish(`${own}.work.at.high.shop.d`, '', { reply: subject })
  }
  for (const stream of STREAMS.map((one) => `${other}_${one}`))
    for (const api of ['$JS.API', 'FAIRLEAD.API']) {
      for (const call of ['PURGE', 'DELETE', 'UPDATE', 'MSG.DELETE', 'MSG.GET', 'INFO'])
        nc.publish(`${api}.STREAM.${call}.${stream}`, JSON.stringify({ name: stream, seq: 1 }))
      const config = { durable_name: 'thief', ack_policy: 'explicit' }
      nc.publish(`${api}.CONSUMER.DURABLE.CREATE.${stream}.thief`, JSON.stringify({ stream_name: stream, config }))
      nc.publish(`${api}.CONSUMER.MSG.NEXT.${stream}.at-high`, '1')
    }
  await nc.flush()
}

describe('processes with these users', () => {
  it('a bridge in the cluster and a dispatcher elsewhere serve it together; one without a certificate waits alone', async () => {
    // Its controller manager gives the account the permissions of the functions.
    await using cluster = await startTestCluster({ controllers: true })
    const kube: KubeClient = createKubeClient({
      ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })),
      userAgent: 'test',
    })
    expect(await command(['--kubeconfig', cluster.kubeconfig, 'install', '-f', MODULE], {})).toMatchObject({ code: 0 })
    // With no more permissions than the account that install makes.
    const account = { namespace: 'fairlead-system', name: 'fairlead' }
    const kubeconfig = await kubeconfigOf(kube, cluster.kubeconfig, account)
    // In the cluster: it connects to its own API server and to NATS, and nothing connects to it.
    const ofBridge = await deployed.as(`fairlead-bridge.spoke`)
    await using bridge = startFairlead(['bridge'], {
      ...ofBridge,
      KUBECONFIG: kubeconfig,
      FAIRLEAD_PREFIX: 'spoke',
    })
    const { NATS_CERT: cert, NATS_KEY: key, ...ofProcess } = await deployed.as(`fairlead-dispatcher.spoke`)
    const file = join(cluster.dir, 'clusters.yaml')
    const nats = (of: string | undefined) => ({ nats: { cert: of, key } })
    await writeFile(
      file,
      stringify({
        clusters: [
          { name: 'other', kubeconfig, ...nats('/none.crt') },
          { name: 'spoke', kubeconfig, ...nats(cert) },
        ],
      }),
    )
    await using dispatcher = startFairlead(['dispatch', '-f', MODULE, '--clusters', file], ofProcess)
    await createPlace(kube, 'far')
    expect(await statusOfPlace(kube, 'far')).toMatchObject({ cluster: 'spoke' })
    const others = dispatcher.logs.filter(({ msg, cluster: name }) => msg === 'cluster' && name === 'other')
    expect(others.map(({ state }) => state)).not.toContain('Up')
    expect(
      [bridge, dispatcher].flatMap(({ logs }) => logs.filter(({ msg }) => msg.startsWith('NATS refuses'))),
    ).toEqual([])
    await kube.close()
  })
})
