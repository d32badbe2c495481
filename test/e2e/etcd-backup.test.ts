import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { EtcdBackup, etcdBackup } from '#functions/etcd/backup'
import { openEtcd } from '#functions/etcd/client'
import { EtcdRestore, etcdRestore, restoreContainer } from '#functions/etcd/restore'
import { openS3, type Store } from '#functions/etcd/stores'
import { addImage, cacheDir } from '#lab'
import { Pod } from '#sdk'
import { addEtcdImages } from '../../deploy/images/etcd/index.ts'
import { addAgentImage } from '../support/fairlead-images.ts'
import { versitygw } from '../support/go-program.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { takeTurnInSoak } from '../support/node.ts'
import { BUCKET, S3_CREDENTIALS } from '../support/object-stores.ts'
import { startTestCluster } from '../support/servers.ts'

const SOON = { timeoutMs: 5000 }
const REGION = 'us-east-1'
const IMAGES = { etcd: 'quay.io/coreos/etcd:v3.7.3', s3: 'versitygw:1.8.0' }
const SECRET = {
  credentials: `[default]\naws_access_key_id=${S3_CREDENTIALS.accessKeyId}\naws_secret_access_key=${S3_CREDENTIALS.secretAccessKey}\n`,
  config: `[default]\nregion=${REGION}\n`,
}
const RESTRICTED = {
  runAsNonRoot: true,
  runAsUser: 65_532,
  fsGroup: 65_532,
  seccompProfile: { type: 'RuntimeDefault' },
}
const NO_RIGHTS = { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } }

const turn = await takeTurnInSoak()
afterAll(turn.end)

describe.skipIf(turn.skip)('backups and restores on a real node', () => {
  let cluster: Awaited<ReturnType<typeof startTestCluster>>
  let operators: RunningOperators
  let kubectl: Kubectl
  let store: Store
  let s3Url: string

  beforeAll(async () => {
    cluster = await startTestCluster({ controllers: true, node: 'real', nats: true })
    kubectl = await kubectlFor(cluster)
    await Promise.all([addImages(cluster.registryUrl ?? ''), kubectl(['apply', '-f', '-'], clusterDefinition())])
    await kubectl(['wait', '--for=condition=Established', 'crd/etcdclusters.etcd.database.coreos.com'])
    const use = { kubeconfig: cluster.kubeconfig, natsUrl: cluster.nats?.url ?? '' }
    operators = await runOperators([etcdBackup, etcdRestore], { use, controllers: true, timeoutSeconds: 240 })
    // Every pod of the agent has to pass it.
    await kubectl(['label', 'namespace', 'default', 'pod-security.kubernetes.io/enforce=restricted'])
    await kubectl(['create', 'namespace', 'stores'])
    await kubectl([
      'create',
      'secret',
      'generic',
      'aws',
      ...Object.entries(SECRET).map(([key, text]) => `--from-literal=${key}=${text}`),
    ])
    await kubectl(['apply', '-f', '-'], s3Pod())
    await kubectl(['apply', '-f', '-'], etcdPod('prod'))
    s3Url = `http://${await addressOf('s3', 'stores')}:7070`
    store = await openS3({ bucket: BUCKET, region: REGION, endpoint: s3Url, credentials: S3_CREDENTIALS })
    await put('key', 'before')
  })
  afterAll(async () => {
    await operators?.[Symbol.asyncDispose]()
    await cluster?.stop()
  })

  async function addressOf(pod: string, namespace = 'default'): Promise<string> {
    await kubectl(['wait', '-n', namespace, '--for=condition=Ready', `pod/${pod}`, '--timeout=240s'])
    return kubectl(['get', 'pod', pod, '-n', namespace, '-o', 'jsonpath={.status.podIP}'])
  }

  async function put(key: string, value: string, pod = 'prod'): Promise<void> {
    using etcd = openEtcd({ url: `http://${await addressOf(pod)}:2379` })
    await etcd.call('put', { key: Buffer.from(key), value: Buffer.from(value) }, SOON)
  }

  async function example(name: string, spec: object = {}) {
    const s3 = { path: `${BUCKET}/${name}`, awsSecret: 'aws', endpoint: s3Url }
    const etcdEndpoints = [`http://${await addressOf('prod')}:2379`]
    return EtcdBackup.of({ metadata: { name }, spec: { etcdEndpoints, storageType: 'S3', s3, ...spec } })
  }

  const keys = async (prefix: string): Promise<string[]> => {
    const found: string[] = []
    for await (const { key } of store.list(prefix)) found.push(key)
    return found.sort()
  }

  it('backs up once, and tells revision, version, size and time', async () => {
    await operators.create(EtcdBackup, await example('once'))
    const found = await operators.until(EtcdBackup, 'once', (backup) => backup?.status.succeeded === true)
    expect(found?.status).toMatchObject({ etcdVersion: '3.7.3', etcdRevision: 2, path: 's3://backups/once' })
    expect(found?.status.size).toBe((await store.head('once'))?.size)
    expect(Math.abs(Date.parse(found?.status.lastSuccessDate ?? '') - Date.now())).toBeLessThan(120_000)
  })

  it('runs its pod without an account, without a right and without a secret in what it says', async () => {
    const [pod] = (await operators.list(Pod)).filter(({ metadata }) => metadata.labels?.['etcd_backup'] === 'once')
    expect(pod?.spec?.volumes?.map(({ name }) => name)).toEqual(['store'])
    const log = await kubectl(['logs', pod?.metadata.name ?? ''])
    expect(log).toContain('s3://backups/once')
    expect(log + JSON.stringify(pod?.status)).not.toContain(S3_CREDENTIALS.secretAccessKey)
  })

  it('backs up periodically, keeps so many, and shows the latest', async () => {
    const backupPolicy = { backupIntervalInSecond: 3, maxBackups: 2 }
    await operators.create(EtcdBackup, await example('often', { backupPolicy }))
    const seen = new Set<string>()
    for (let latest: string | undefined; seen.size < 4; ) {
      const found = await operators.until(EtcdBackup, 'often', (one) => one?.status.path !== latest)
      latest = found?.status.path
      seen.add(latest ?? '')
    }
    await kubectl(['delete', 'etcdbackup', 'often'])
    const kept = await keys('often')
    expect(kept.length).toBeLessThanOrEqual(3)
    // The first snapshots are deleted. There may be one more, from a pod that was deleted with the EtcdBackup.
    expect(kept).not.toContain([...seen][0]?.replace('s3://backups/', ''))
  })

  it('says what is wrong with a store that refuses, and succeeds when that is mended', async () => {
    await operators.create(
      EtcdBackup,
      await example('mended', { s3: { path: 'nowhere/mended', awsSecret: 'aws', endpoint: s3Url } }),
    )
    const failed = await operators.until(EtcdBackup, 'mended', (one) => one?.status.succeeded === false)
    expect(failed?.status.Reason).toMatch(
      /NoSuchBucket.*create the bucket nowhere, or correct the first segment of the path/,
    )
    await operators.patch(EtcdBackup, 'mended', { spec: { s3: { path: `${BUCKET}/mended` } } })
    await operators.until(EtcdBackup, 'mended', (one) => one?.status.succeeded === true)
  })

  it('says which Secret is missing', async () => {
    const s3 = { path: `${BUCKET}/x`, awsSecret: 'none', endpoint: s3Url }
    await operators.create(EtcdBackup, await example('secretless', { s3 }))
    const failed = await operators.until(EtcdBackup, 'secretless', (one) => one?.status.succeeded === false)
    expect(failed?.status.Reason).toMatch(/^the Secret of the store does not exist or has no key credentials/)
    await kubectl(['delete', 'etcdbackup', 'secretless'])
  })

  it('is refused by the API server without the block of its store', async () => {
    const wrong = await example('wrong', { storageType: 'GCS' })
    await expect(operators.create(EtcdBackup, wrong)).rejects.toThrow('GCS needs gcs')
  })

  it('publishes nothing if its pod is killed in the middle, and makes it up', async () => {
    await kubectl(['apply', '-f', '-'], silentPod())
    const silent = `http://${await addressOf('silent', 'stores')}:7070`
    const s3 = { path: `${BUCKET}/killed`, awsSecret: 'aws', endpoint: silent }
    await operators.create(EtcdBackup, await example('killed', { s3 }))
    const agent = async () => {
      const pods = await operators.list(Pod)
      return pods.find(({ metadata }) => metadata.labels?.['etcd_backup'] === 'killed')
    }
    await expect.poll(async () => (await agent())?.status?.phase, { timeout: 60_000 }).toBe('Running')
    await operators.patch(EtcdBackup, 'killed', { spec: { s3: { endpoint: s3Url } } })
    const first = await agent()
    expect(await keys('killed')).toEqual([])
    await kubectl(['delete', 'pod', first?.metadata.name ?? '', '--grace-period=0', '--force'])
    await operators.until(EtcdBackup, 'killed', (one) => one?.status.succeeded === true)
    expect(await keys('killed')).toEqual(['killed'])
    expect((await agent())?.metadata.uid).not.toBe(first?.metadata.uid)
  })

  it('restores what was backed up, after it was checked, into a member with another cluster and a higher revision', async () => {
    await put('key', 'after')
    await kubectl(['apply', '-f', '-'], {
      ...CLUSTER,
      metadata: { name: 'prod', namespace: 'default' },
      spec: { version: '3.7.3' },
    })
    const s3 = { path: `${BUCKET}/once`, awsSecret: 'aws', endpoint: s3Url }
    const spec = { etcdCluster: { name: 'prod' }, backupStorageType: 'S3', s3 } as const
    await operators.create(EtcdRestore, EtcdRestore.of({ metadata: { name: 'prod' }, spec }))
    const verified = await operators.until(EtcdRestore, 'prod', (one) => one?.status.verified !== undefined)
    expect(verified?.status).toMatchObject({ succeeded: false, verified: { etcdRevision: 2, etcdVersion: '3.7.3' } })

    await kubectl(['apply', '-f', '-'], seedPod(verified!))
    using etcd = openEtcd({ url: `http://${await addressOf('seed')}:2379` })
    const { kvs, header } = await etcd.call('range', { key: Buffer.from('key') }, SOON)
    expect(kvs[0]?.value.toString()).toBe('before')
    expect(header.revision).toBeGreaterThan(1_000_000_000)

    const status = { restoredFrom: verified?.metadata.uid, serviceName: 'prod-client', members: { ready: ['seed'] } }
    await kubectl(['apply', '-f', '-'], seedEndpoints(await addressOf('seed')))
    await kubectl([
      'patch',
      'etcdcluster',
      'prod',
      '--subresource=status',
      '--type=merge',
      '-p',
      JSON.stringify({ status }),
    ])
    await operators.until(EtcdRestore, 'prod', (one) => one?.status.succeeded === true)
  })

  it('is fixed once the snapshot is verified, and has the name of its cluster', async () => {
    const other = operators.patch(EtcdRestore, 'prod', { spec: { s3: { path: `${BUCKET}/other` } } })
    await expect(other).rejects.toThrow('for another restore create another EtcdRestore')
    const s3 = { path: `${BUCKET}/once`, awsSecret: 'aws' }
    const spec = { etcdCluster: { name: 'prod' }, backupStorageType: 'S3', s3 } as const
    const misnamed = operators.create(EtcdRestore, EtcdRestore.of({ metadata: { name: 'other' }, spec }))
    await expect(misnamed).rejects.toThrow('an EtcdRestore has the name of its cluster: name it prod')
  })

  it('finds a snapshot that is damaged before anything is touched', async () => {
    const damaged = async function* () {
      const bytes: Uint8Array[] = []
      for await (const chunk of store.get('once')) bytes.push(chunk)
      const all = Buffer.concat(bytes)
      all[5000] = (all[5000] ?? 0) ^ 1
      yield all
    }
    await store.put('damaged', damaged(), { metadata: {} })
    await kubectl(['apply', '-f', '-'], {
      ...CLUSTER,
      metadata: { name: 'safe', namespace: 'default' },
      spec: { version: '3.7.3' },
    })
    const s3 = { path: `${BUCKET}/damaged`, awsSecret: 'aws', endpoint: s3Url }
    const spec = { etcdCluster: { name: 'safe' }, backupStorageType: 'S3', s3 } as const
    await operators.create(EtcdRestore, EtcdRestore.of({ metadata: { name: 'safe' }, spec }))
    const failed = await operators.until(EtcdRestore, 'safe', (one) => one?.status.succeeded === false)
    expect(failed?.status.reason).toMatch(/it is damaged$/)
    expect(failed?.status.verified).toBe(undefined)
  })
})

const CLUSTER = { apiVersion: 'etcd.database.coreos.com/v1beta2', kind: 'EtcdCluster' }

async function addImages(registryUrl: string): Promise<void> {
  const s3Server = await versitygw()
  await Promise.all([
    addAgentImage(registryUrl, cacheDir(process.env)),
    addEtcdImages(registryUrl),
    addImage(registryUrl, IMAGES.s3, {
      files: {
        'usr/local/bin/versitygw': { from: s3Server },
        [`data/${BUCKET}/.keep`]: { content: '' },
        'attributes/.keep': { content: '' },
      },
      config: { Entrypoint: ['/usr/local/bin/versitygw'] },
    }),
  ])
}

const podOf = (name: string, namespace: string, spec: object): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace },
  spec: { enableServiceLinks: false, terminationGracePeriodSeconds: 0, ...spec },
})

const s3Pod = (): object =>
  podOf('s3', 'stores', {
    containers: [
      {
        name: 's3',
        image: IMAGES.s3,
        args: [
          '--access',
          S3_CREDENTIALS.accessKeyId,
          '--secret',
          S3_CREDENTIALS.secretAccessKey,
          '--region',
          REGION,
          '--port',
          ':7070',
          'posix',
          '--sidecar',
          '/attributes',
          '/data',
        ],
        readinessProbe: { tcpSocket: { port: 7070 }, periodSeconds: 1 },
      },
    ],
  })

const etcd = (name: string, more: string[] = []): object => ({
  name: 'etcd',
  image: IMAGES.etcd,
  command: [
    '/usr/local/bin/etcd',
    `--name=${name}`,
    '--data-dir=/var/etcd/data',
    '--listen-client-urls=http://0.0.0.0:2379',
    '--advertise-client-urls=http://127.0.0.1:2379',
    `--initial-cluster=${name}=http://127.0.0.1:2380`,
    '--initial-advertise-peer-urls=http://127.0.0.1:2380',
    '--listen-peer-urls=http://127.0.0.1:2380',
    ...more,
  ],
  securityContext: NO_RIGHTS,
  readinessProbe: { tcpSocket: { port: 2379 }, periodSeconds: 1 },
  volumeMounts: [{ name: 'data', mountPath: '/var/etcd' }],
})
const data = { name: 'data', emptyDir: {} }

const etcdPod = (name: string): object =>
  podOf(name, 'default', { securityContext: RESTRICTED, containers: [etcd(name)], volumes: [data] })

/** A store that takes connections and never answers: it holds an agent in the middle. */
const silentPod = (): object =>
  podOf('silent', 'stores', {
    containers: [
      {
        name: 'silent',
        image: 'fairlead-etcd-agent:latest',
        command: ['node', '-e', "require('node:net').createServer(() => {}).listen(7070)"],
        readinessProbe: { tcpSocket: { port: 7070 }, periodSeconds: 1 },
      },
    ],
  })

/** What the function of the EtcdCluster makes of a verified snapshot. */
function seedPod(restore: ReturnType<typeof EtcdRestore.parse>): object {
  const { initContainer, volumes } = restoreContainer(restore, {
    name: 'seed',
    peerUrl: 'http://127.0.0.1:2380',
    token: 'second',
    dataDir: '/var/etcd/data',
    volume: 'data',
    mountPath: '/var/etcd',
  })!
  return podOf('seed', 'default', {
    securityContext: RESTRICTED,
    initContainers: [initContainer],
    containers: [etcd('seed')],
    volumes: [data, ...volumes],
  })
}

/** What Kubernetes makes of the Service for clients when the first member is ready. */
const seedEndpoints = (address: string): object => ({
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: {
    name: 'prod-client-1',
    namespace: 'default',
    labels: { app: 'etcd', etcd_cluster: 'prod', 'kubernetes.io/service-name': 'prod-client' },
  },
  addressType: 'IPv4',
  endpoints: [{ addresses: [address], conditions: { ready: true }, targetRef: { kind: 'Pod', name: 'seed' } }],
})

/** The fields that a restore reads. */
const clusterDefinition = (): object => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'etcdclusters.etcd.database.coreos.com' },
  spec: {
    group: 'etcd.database.coreos.com',
    scope: 'Namespaced',
    names: { kind: 'EtcdCluster', listKind: 'EtcdClusterList', plural: 'etcdclusters', singular: 'etcdcluster' },
    versions: [
      {
        name: 'v1beta2',
        served: true,
        storage: true,
        subresources: { status: {} },
        schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
      },
    ],
  },
})
