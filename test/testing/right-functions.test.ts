import { describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import {
  CronJob,
  Deployment,
  immutable,
  Job,
  NetworkPolicy,
  PersistentVolumeClaim,
  type ReconcileOutcome,
  type Run,
  readinessOf,
  reconciler,
  resource,
  Secret,
  StatefulSet,
} from '#sdk'
import { deploymentsRun, jobsRun, lawsOf, type Scenario, type Simulation, statefulSetsRun } from '#testing'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ version: z.int32() }),
  status: z.object({ migratedTo: z.int32().optional(), phase: z.string().optional(), count: z.int32().optional() }),
})
const owns = [Deployment, CronJob, NetworkPolicy, Job, StatefulSet] as const
type ShopRun = Run<typeof Shop, (typeof owns)[number], never>
type Status = NonNullable<Parameters<typeof Shop.of>[0]['status']>
type Reconcile = (run: ShopRun) => ReconcileOutcome<Status>
const objects = [Shop.of({ metadata: { name: 'a', namespace: 'default' }, spec: { version: 1 } })]

/** Returns what the laws whose names begin so find. */
async function found(law: string, reconcile: Reconcile, scenario: Omit<Scenario, 'objects'>): Promise<string[]> {
  const rows = lawsOf(reconciler({ name: 'shop', for: Shop, owns, reconcile }), { objects, ...scenario })
  const messages: string[] = []
  for (const [name, holds] of rows)
    if (name.startsWith(law)) await holds({ skip: () => {} }).catch(({ message }: Error) => messages.push(message))
  return messages
}

const step = (what: string, change: Exclude<NonNullable<Scenario['steps']>[number][1], readonly unknown[]>) =>
  [what, change] as const
const minute = step('a minute', (world) => world.advance(60))
const version = (next: number) => step(`version ${next}`, (world) => world.edit({ spec: { version: next } }))

const pods = (name: string, image: string) => ({
  selector: { matchLabels: { app: name } },
  template: { metadata: { labels: { app: name } }, spec: { containers: [{ name, image }] } },
})
const jobSpec = (image: string) => ({
  template: { spec: { restartPolicy: 'Never', containers: [{ name: 'main', image }] } },
})
const job = (name: string, image: string) => Job.of({ metadata: { name }, spec: jobSpec(image) })

describe('a scenario', () => {
  const Disk = resource({
    group: 'example.com',
    version: 'v1',
    kind: 'Disk',
    plural: 'disks',
    rules: [immutable('.spec.zone')],
    spec: z.object({ size: z.int32(), zone: z.string(), class: z.string().default('slow'), tags: z.array(z.string()) }),
    status: z.object({}),
  })
  const disk = reconciler({ name: 'disk', for: Disk, reconcile: () => undefined })
  const objects = [
    Disk.of({ metadata: { name: 'a', namespace: 'default' }, spec: { size: 1, zone: 'z', tags: ['a'] } }),
  ]
  const size = ['another size', (world: Simulation<typeof Disk>) => world.edit({ spec: { size: 2 } })] as const
  const rest = [
    'another class and tag',
    (world: Simulation<typeof Disk>) => world.edit({ spec: { class: 'fast', tags: ['b'] } }),
  ] as const

  it.each([
    ['.spec.class, .spec.tags', [size]],
    ['.spec.size', [rest]],
    [undefined, [size, rest]],
  ])('is told which fields it does not change, but for those that nobody may: %s', async (fields, steps) => {
    const warned = vi.spyOn(console, 'warn').mockImplementation(() => {})
    for (const [, holds] of lawsOf(disk, { objects, steps })) await holds({ skip: () => {} })
    const lines = warned.mock.calls.flat()
    warned.mockRestore()
    expect(lines).toEqual(
      fields === undefined ? [] : [`no step of the scenario changes ${fields}: no law finds what such a change breaks`],
    )
  })
})

describe('the law of a process that dies', () => {
  const DIES = 'comes to the same end if its process dies'
  const waiting = { cluster: deploymentsRun, steps: [version(2)] }
  const db = ({ object }: ShopRun) =>
    Deployment.of({ metadata: { name: 'db' }, spec: pods('db', `db:${object.spec.version}`) })
  const isReady = ({ owned }: ShopRun) =>
    readinessOf(owned(Deployment).find(({ metadata }) => metadata.name === 'db')).isReady
  const shown = (run: ShopRun) => [
    { type: 'Ready', status: isReady(run) ? 'True' : 'False', reason: isReady(run) ? 'Serving' : 'Starting' } as const,
  ]
  const beside: [string, Reconcile][] = [
    [
      'a Deployment without replicas',
      (run) => {
        const spec = { replicas: isReady(run) ? 2 : 0, ...pods('app', 'app') }
        return { apply: [db(run), Deployment.of({ metadata: { name: 'app' }, spec })], conditions: shown(run) }
      },
    ],
    [
      'a suspended CronJob',
      (run) => {
        const spec = { schedule: '@hourly', suspend: !isReady(run), jobTemplate: { spec: jobSpec('clean') } }
        return { apply: [db(run), CronJob.of({ metadata: { name: 'clean' }, spec })], conditions: shown(run) }
      },
    ],
    [
      'a NetworkPolicy that lets nobody in',
      (run) => {
        const spec = { podSelector: {}, policyTypes: ['Ingress'], ingress: isReady(run) ? [{}] : [] }
        return { apply: [db(run), NetworkPolicy.of({ metadata: { name: 'door' }, spec })], conditions: shown(run) }
      },
    ],
  ]
  it.each(beside)(
    'counts no writes on the way, of a function that has %s until another is ready',
    async (_, reconcile) => expect(await found(DIES, reconcile, waiting)).toEqual([]),
  )

  it('finds a function that counts the writes itself', async () => {
    const counting: Reconcile = (run) => {
      const { apply, conditions } = beside[0]![1](run)
      const app = run.owned(Deployment).find(({ metadata }) => metadata.name === 'app')
      return { apply: apply!, conditions: conditions!, status: { count: app?.metadata.generation ?? 0 } }
    }
    const [message] = await found(DIES, counting, waiting)
    expect(message).toMatch(/it ends otherwise if the process dies before [^]*\.status\.count: 2 → 1/)
  })
})

describe('the law of Jobs that are due', () => {
  const HOUR_MS = 3_600_000
  /** A migration of each version; a backup of each hour, of which three stay, and none while a migration runs. */
  const backingUp: Reconcile = ({ object: { spec }, owned, now }) => {
    const hour = Math.floor(now.getTime() / HOUR_MS)
    const migration = job(`schema-${spec.version}`, `tool:${spec.version}`)
    const backup = job(`backup-${hour}`, `tool:${spec.version}`)
    const named = (name: string) => owned(Job).find(({ metadata }) => metadata.name === name)
    const isMigrated = readinessOf(named(migration.metadata.name)).isReady
    const backups = owned(Job)
      .filter(({ metadata }) => metadata.name.startsWith('backup-'))
      .sort((one, other) => (one.metadata.name < other.metadata.name ? 1 : -1))
    const isDue = isMigrated && named(backup.metadata.name) === undefined
    return {
      apply: [migration, ...(isDue ? [backup] : []), ...backups.slice(0, 3)],
      conditions: [{ type: 'Ready', status: isMigrated ? 'True' : 'False', reason: 'Migration' }],
      requeueAt: new Date((hour + 1) * HOUR_MS),
    }
  }

  it('blames no backup that is there, of a function that makes none while a migration runs', async () => {
    const hours = step('hours', (world) => world.advance(7260))
    const steps = [hours, version(2), minute]
    expect(await found('makes the Jobs', backingUp, { cluster: jobsRun({ seconds: 30 }), steps })).toEqual([])
  })

  const failing = {
    cluster: jobsRun({ seconds: 30, fails: ({ metadata }) => metadata.name === 'schema-2' }),
    steps: [step('hours', (world) => world.advance(7260)), version(2), minute, version(3), minute],
  }

  it('blames none of a function that makes none after a migration that failed', async () =>
    expect(await found('makes the Jobs', backingUp, failing)).toEqual([]))

  it('finds the backup of before there, if the status says which version has one', async () => {
    const once: Reconcile = (run) => {
      const { spec, status } = run.object
      const made = run.owned(Job).find(({ metadata }) => metadata.name === 'copy')
      const migration = job(`schema-${spec.version}`, `tool:${spec.version}`)
      const isMigrated = readinessOf(
        run.owned(Job).find(({ metadata }) => metadata.name === migration.metadata.name),
      ).isReady
      const count = isMigrated && readinessOf(made).isReady ? spec.version : (status.count ?? 0)
      const copy = isMigrated && count !== spec.version ? [job('copy', `tool:${spec.version}`)] : []
      return { apply: [migration, ...(made ? [made] : copy)], status: { count } }
    }
    const [message] = await found('makes the Jobs', once, failing)
    expect(message).toMatch(
      /^the complete Job\.batch default\/copy, made at .* stands for the one that is due, after "version/,
    )
  })
})

describe('the law of failed Jobs', () => {
  /** Migrates when the database of a version has been rolled out. `isStuck`: never if a migration before has failed. */
  const migrating =
    (isStuck: boolean): Reconcile =>
    ({ object, owned }) => {
      const { spec, status } = object
      const [db] = owned(StatefulSet)
      const image = `db:${spec.version}`
      const isRolled = readinessOf(db).isReady && db?.spec?.template.spec?.containers[0]?.image === image
      const jobs = owned(Job)
      const found = jobs.find(({ metadata }) => metadata.name === `schema-${spec.version}`)
      const done = jobs.filter((one) => readinessOf(one).isReady).map(({ metadata }) => Number(metadata.name.slice(7)))
      const migratedTo = Math.max(0, ...done, status.migratedTo ?? 0)
      const isLeft = isStuck && jobs.some((one) => one !== found && !readinessOf(one).isReady)
      const isDue = isRolled && !isLeft && migratedTo !== spec.version
      const phase = !isDue ? 'Waiting' : readinessOf(found).isFailed ? 'Failed' : 'Migrating'
      return {
        apply: [
          StatefulSet.of({ metadata: { name: 'db' }, spec: { serviceName: 'db', ...pods('db', image) } }),
          ...(isDue ? [found ?? job(`schema-${spec.version}`, 'schema')] : jobs),
        ],
        status: { migratedTo, phase: migratedTo === spec.version ? 'Open' : phase },
      }
    }
  const scenario = {
    cluster: [
      statefulSetsRun({ oneByOne: true }),
      jobsRun({ seconds: 30, fails: ({ metadata }) => metadata.name === 'schema-2' }),
    ],
    steps: [minute, version(2), minute, version(3), minute],
  }

  it('is silent about a function that waits for a rollout, and then goes on to the next Job', async () =>
    expect(await found('shows the failure', migrating(false), scenario)).toEqual([]))

  it('finds one that waits for the failed Job when all else has come to rest', async () => {
    const [message] = await found('shows the failure', migrating(true), scenario)
    expect(message).toMatch('it waits for Job.batch default/schema-1 as if it still ran, if it has failed')
  })
})

describe('the law of fights', () => {
  it('writes only what the API server accepts into a Secret and a claim', async () => {
    const login = reconciler({
      name: 'login',
      for: Shop,
      owns: [Secret, PersistentVolumeClaim],
      reconcile({ object, owned, secret }) {
        const size = owned(PersistentVolumeClaim)[0]?.spec?.resources?.requests?.['storage'] ?? '10Gi'
        if (!/^\d+Gi$/.test(size)) throw new Error(`not a size: ${size}`)
        const password = owned(Secret)[0]?.data?.['password'] ?? btoa(secret('password'))
        const url = btoa(`postgres://app:${atob(password)}@db-${object.spec.version}`)
        const claim = PersistentVolumeClaim.of({
          metadata: { name: 'disk' },
          spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: size } } },
        })
        return { apply: [claim, Secret.of({ metadata: { name: 'login' }, data: { password, url } })] }
      },
    })
    const rows = lawsOf(login, { objects, steps: [version(2)] })
    const fights = rows.filter(([name]) => name.startsWith('writes little while others fight'))
    expect(fights).toHaveLength(1)
    for (const [, holds] of fights) await holds({ skip: () => {} })
  })
})
