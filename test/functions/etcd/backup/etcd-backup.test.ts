import { describe, expect, it } from 'vitest'
import { EtcdBackup, etcdBackup } from '#functions/etcd/backup'
import { Pod } from '#sdk'
import { lawsOf, type Simulation, simulate } from '#testing'
import { endAgent, podsOf, STORED } from './agent.ts'

const NOW = '2030-01-01T00:00:00.000Z'
const HOUR = 3600
const S3 = { path: 'bucket/etcd/prod', awsSecret: 'aws' }

const example = (spec: object = {}) =>
  EtcdBackup.of({
    metadata: { name: 'example', namespace: 'default' },
    spec: { etcdEndpoints: ['http://prod-client:2379'], storageType: 'S3', s3: S3, ...spec },
  })
const hourly = { backupPolicy: { backupIntervalInSecond: HOUR, maxBackups: 3 } }
const simulated = (spec?: object) => simulate(etcdBackup, { objects: [example(spec)], now: NOW })
type World = ReturnType<typeof simulated>

const stored = ({ now }: Simulation) => ({ ...STORED, time: now.toISOString() })
const readyOf = ({ object }: World) => object?.status?.conditions?.find(({ type }) => type === 'Ready')

async function backedUp(world: World): Promise<void> {
  await world.runUntilIdle()
  endAgent(world, stored(world))
  await world.runUntilIdle()
}

describe('a backup that is made once', () => {
  it('runs the agent in one pod, and tells what it has stored', async () => {
    const world = simulated()
    await world.runUntilIdle()
    expect(world.list(Pod)).toHaveLength(1)
    expect(readyOf(world)).toMatchObject({ status: 'False', reason: 'BackingUp' })
    endAgent(world, stored(world))
    await world.runUntilIdle()
    expect(world.object?.status).toMatchObject({ ...STORED, succeeded: true, lastSuccessDate: NOW })
    expect(readyOf(world)).toMatchObject({ status: 'True', reason: 'BackedUp' })
  })

  it('is not made again, whatever time passes and whatever becomes of its pod', async () => {
    const world = simulated()
    await backedUp(world)
    const [pod] = podsOf(world)
    await world.advance(30 * 24 * HOUR)
    expect(podsOf(world)).toEqual([pod])
    world.delete(Pod)
    await world.runUntilIdle()
    expect(podsOf(world)).toEqual([])
    expect(world.timer).toBe(undefined)
  })

  it('is tried again after 10 s, 20 s, 40 s …, each time in another pod, and given up after six', async () => {
    const world = simulated()
    const pods = new Set<string>()
    for (const delay of [10, 20, 40, 80, 160, 320]) {
      await world.runUntilIdle()
      pods.add(podsOf(world)[0] ?? '')
      endAgent(world, { error: 'the bucket is gone' })
      await world.runUntilIdle()
      expect(world.object?.status).toMatchObject({ succeeded: false, Reason: 'the bucket is gone' })
      expect(readyOf(world)?.reason).toBe('BackupFailed')
      expect((world.timer?.getTime() ?? 0) - world.now.getTime()).toBe(delay * 1000)
      await world.advance(delay)
    }
    endAgent(world, { error: 'the bucket is gone' })
    await world.runUntilIdle()
    expect(pods.size).toBe(6)
    expect(readyOf(world)).toMatchObject({
      status: 'False',
      reason: 'BackoffLimitExceeded',
      message: 'the bucket is gone',
    })
    expect(world.timer).toBe(undefined)
  })

  it('that was given up is tried again after an edit', async () => {
    const world = simulated()
    for (let n = 0; n < 7; n++) {
      await world.runUntilIdle()
      endAgent(world, { error: 'no' })
      await world.runUntilIdle()
      await world.advance(360)
    }
    const [last] = podsOf(world)
    world.edit({ spec: { s3: { ...S3, path: 'bucket/other' } } })
    await backedUp(world)
    expect(podsOf(world)).not.toContain(last)
    expect(world.object?.status).toMatchObject({ succeeded: true })
    expect(world.object?.status?.Reason).toBe(undefined)
  })
})

describe('a periodic backup', () => {
  it('is made at once, then at each interval from the last success', async () => {
    const world = simulated(hourly)
    await backedUp(world)
    expect(world.timer?.toISOString()).toBe('2030-01-01T01:00:00.000Z')
    const [first] = podsOf(world)
    await world.advance(HOUR - 1)
    expect(podsOf(world)).toEqual([first])
    await world.advance(1)
    expect(podsOf(world)).not.toContain(first)
    await backedUp(world)
    expect(world.timer?.toISOString()).toBe('2030-01-01T02:00:00.000Z')
  })

  it('is made up for once, however many times were missed', async () => {
    const world = simulated(hourly)
    await backedUp(world)
    world.pass(100 * HOUR)
    await backedUp(world)
    expect(world.object?.status?.lastSuccessDate).toBe(world.now.toISOString())
    expect((world.timer?.getTime() ?? 0) - world.now.getTime()).toBe(HOUR * 1000)
    expect(podsOf(world)).toHaveLength(1)
  })

  it('that fails keeps what the last one stored in its status, and is tried for as long as it takes', async () => {
    const world = simulated(hourly)
    await backedUp(world)
    await world.advance(HOUR)
    for (let n = 0; n < 20; n++) {
      endAgent(world, { error: 'no' })
      await world.runUntilIdle()
      await world.advance(360)
    }
    expect(world.object?.status).toMatchObject({
      ...STORED,
      succeeded: false,
      Reason: 'no',
      lastSuccessDate: NOW,
      failures: 20,
    })
    await backedUp(world)
    expect(world.object?.status).toMatchObject({ succeeded: true })
  })

  it('whose old ones cannot be deleted has succeeded, and says so in an Event', async () => {
    const world = simulated(hourly)
    await world.runUntilIdle()
    endAgent(world, { ...stored(world), retentionError: 'DELETE s3://b/k: 403' })
    await world.runUntilIdle()
    expect(readyOf(world)?.status).toBe('True')
    expect(world.events).toMatchObject([
      { reason: 'BackedUp' },
      { type: 'Warning', reason: 'RetentionFailed', message: 'DELETE s3://b/k: 403' },
    ])
  })

  it('names backups whose times are in the future, and has succeeded', async () => {
    const world = simulated(hourly)
    await world.runUntilIdle()
    endAgent(world, { ...stored(world), ahead: ['s3://b/etcd_v7_2031-01-01-00:00:00', 's3://b/other'] })
    await world.runUntilIdle()
    expect(readyOf(world)?.status).toBe('True')
    const message = expect.stringMatching(
      /^s3:\/\/b\/etcd_v7_2031-01-01-00:00:00 and 1 more have times after /,
    ) as string
    expect(world.events).toMatchObject([{ reason: 'BackedUp' }, { type: 'Warning', reason: 'BackupInFuture', message }])
  })

  it.each([
    [1, /^s3:\/\/b\/etcd_v7 is of an EtcdBackup with this name and another UID, /],
    [3, /^s3:\/\/b\/etcd_v7 and 2 more are of an EtcdBackup with this name and another UID, /],
  ])('names backups of EtcdBackups with its name, here %d, and has succeeded', async (count, text) => {
    const world = simulated(hourly)
    await world.runUntilIdle()
    endAgent(world, { ...stored(world), namesakes: { first: 's3://b/etcd_v7', count } })
    await world.runUntilIdle()
    expect(readyOf(world)?.status).toBe('True')
    const message = expect.stringMatching(text) as string
    expect(world.events).toMatchObject([
      { reason: 'BackedUp' },
      { type: 'Warning', reason: 'BackupsNotCounted', message },
    ])
  })
})

describe('the pod of a backup', () => {
  const podOf = async (spec: object = {}) => {
    const world = simulated(spec)
    await world.runUntilIdle()
    return world.list(Pod)[0]!
  }

  it('has no account, no right, and nothing to write to', async () => {
    const { spec } = await podOf()
    expect(spec).toMatchObject({
      automountServiceAccountToken: false,
      restartPolicy: 'Never',
      securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
    })
    expect(spec?.serviceAccountName).toBe(undefined)
    expect(spec?.containers[0]?.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ['ALL'] },
    })
    expect(spec?.containers[0]?.volumeMounts?.every(({ readOnly }) => readOnly)).toBe(true)
  })

  it('is told where the snapshot goes, and by which files it is let in', async () => {
    const s3 = { ...S3, endpoint: 'https://minio:9000', forcePathStyle: true }
    const { metadata, spec } = await podOf({ s3, clientTLSSecret: 'tls', ...hourly })
    const { uid } = metadata.ownerReferences?.[0] ?? {}
    expect(uid).toMatch(/./)
    expect(spec?.containers[0]?.args).toEqual([
      'etcd-agent',
      'backup',
      '--endpoints=http://prod-client:2379',
      `--owner=default/example/${uid}`,
      '--periodic',
      '--keep=3',
      '--store=s3',
      '--path=bucket/etcd/prod',
      '--endpoint=https://minio:9000',
      '--path-style',
      '--timeout=60',
      '--etcd-tls=/etc/fairlead/etcd-tls',
      '--store-secret=/etc/fairlead/store',
      '--report=/dev/termination-log',
    ])
    expect(spec?.volumes?.map(({ secret }) => secret?.secretName)).toEqual(['tls', 'aws'])
  })

  it.each<[string, object, string[]]>([
    ['ABS', { abs: { path: 'c/k', absSecret: 'azure' } }, ['--store=abs', '--path=c/k']],
    ['GCS', { gcs: { path: 'b/k', gcpSecret: 'google' } }, ['--store=gcs', '--path=b/k']],
  ])('knows %s', async (storageType, block, args) => {
    const { spec } = await podOf({ storageType, ...block })
    expect(spec?.containers[0]?.args).toEqual(expect.arrayContaining(args))
  })

  it.each<[string, object, object]>([
    ['S3', { s3: { path: 'bucket/k' } }, {}],
    [
      'ABS',
      { abs: { path: 'c/k', endpoint: 'https://a.blob.core.windows.net' } },
      { 'azure.workload.identity/use': 'true' },
    ],
    ['GCS', { gcs: { path: 'b/k' } }, {}],
  ])('has an identity for %s without a Secret: that of its ServiceAccount, and not of its node', async (...given) => {
    const [storageType, block, labels] = given
    const { metadata, spec } = await podOf({ storageType, s3: undefined, ...block, agentServiceAccount: 'backups' })
    expect(spec).toMatchObject({ serviceAccountName: 'backups', automountServiceAccountToken: false, volumes: [] })
    expect(metadata.labels).toEqual({ app: 'etcd-backup', etcd_backup: 'example', ...labels })
    const { args, env } = spec?.containers[0] ?? {}
    expect(args?.join(' ')).not.toContain('--store-secret')
    expect(env).toEqual([
      { name: 'AWS_EC2_METADATA_DISABLED', value: 'true' },
      { name: 'AZURE_TOKEN_CREDENTIALS', value: 'WorkloadIdentityCredential' },
      { name: 'METADATA_SERVER_DETECTION', value: 'assume-present' },
    ])
  })

  it('has the ServiceAccount of its namespace, and no label of Azure, with a Secret', async () => {
    const { metadata, spec } = await podOf({ storageType: 'ABS', abs: { path: 'c/k', absSecret: 'azure' } })
    expect(spec?.serviceAccountName).toBe(undefined)
    expect(Object.keys(metadata.labels ?? {})).toEqual(['app', 'etcd_backup'])
  })

  it('is refused with a condition where the block of the store is missing', async () => {
    const world = simulated({ storageType: 'GCS' })
    await world.runUntilIdle()
    expect(podsOf(world)).toEqual([])
    expect(String(world.failure)).toContain('spec.gcs is missing')
  })

  it('that waits says what it waits for', async () => {
    const world = simulated()
    await world.runUntilIdle()
    const waiting = { reason: 'ImagePullBackOff', message: 'no such image' }
    world.patch(Pod, { status: { phase: 'Pending', containerStatuses: [{ name: 'agent', state: { waiting } }] } })
    await world.runUntilIdle()
    expect(readyOf(world)).toMatchObject({ status: 'False', ...waiting })
  })

  it('that was ended from outside counts as failed, with the words of Kubernetes', async () => {
    const world = simulated()
    await world.runUntilIdle()
    endAgent(world, '', 'OOMKilled')
    await world.runUntilIdle()
    expect(world.object?.status?.Reason).toMatch(/ended without a report: OOMKilled$/)
  })

  it('that was deleted is made again', async () => {
    const world = simulated()
    await world.runUntilIdle()
    const before = podsOf(world)
    world.delete(Pod)
    await world.runUntilIdle()
    expect(podsOf(world)).toEqual(before)
    expect(world.object?.status?.failures).toBe(undefined)
  })

  it('whose node is lost is given up some minutes after its deadline', async () => {
    const world = simulated()
    await world.runUntilIdle()
    const [lost] = podsOf(world)
    await world.advance(60 + 120 + 300)
    expect(world.object?.status?.Reason).toMatch(/is its node lost\?$/)
    await world.advance(10)
    expect(podsOf(world)).toHaveLength(1)
    expect(podsOf(world)).not.toContain(lost)
  })
})

describe('laws', () => {
  it.each(
    lawsOf(etcdBackup, {
      objects: [example(hourly)],
      now: NOW,
      steps: [
        ['the agent fails', (world) => endIfRunning(world, { error: 'no' })],
        ['time passes', (world) => world.pass(10)],
        ['the agent stores', (world) => endIfRunning(world, { ...STORED, time: NOW })],
        ['an hour passes', (world) => world.pass(HOUR)],
        ['it becomes rarer', (world) => world.edit({ spec: { backupPolicy: { backupIntervalInSecond: 2 * HOUR } } })],
      ],
    }),
  )('%s', (_, holds) => holds())
})

function endIfRunning(world: Simulation<typeof EtcdBackup>, report: object): void {
  if (world.list(Pod).some(({ status }) => status?.phase === undefined)) endAgent(world, report)
}
