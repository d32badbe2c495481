import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { EtcdCluster } from '#functions/etcd'
import { EtcdBackup } from '#functions/etcd/backup'
import { ConfigMap, Pod, type Reconciler } from '#sdk'
import { lawsOf, type Scenario, type Simulation } from '#testing'
import { scenario as tenantScenario } from '../../docs/examples/tenant-database/scenario.ts'
import { Workspace } from '../../docs/examples/workspace/resource.ts'
import { scenarios as atScenarios } from '../functions/at/scenarios.ts'
import { endAgent, STORED } from '../functions/etcd/backup/agent.ts'
import { type Clusters, cluster, etcdModel, kubelets } from '../functions/etcd/operator/simulated.ts'
import { scenario as memcachedScenario } from '../functions/memcached/scenario.ts'
import { scenario as visitorsScenario } from '../functions/visitors/scenario.ts'

/** An operator, and where its function is. */
interface Subject {
  folder: string
  module: string
  exported: string
}

const at: Subject = { folder: 'functions/at', module: 'at.ts', exported: 'at' }
const memcached: Subject = { folder: 'functions/memcached', module: 'memcached.ts', exported: 'memcached' }
const visitors: Subject = { folder: 'functions/visitors', module: 'visitors.ts', exported: 'visitors' }
const etcdBackup: Subject = { folder: 'functions/etcd', module: 'backup/etcd-backup.ts', exported: 'etcdBackup' }
const etcd: Subject = { folder: 'functions/etcd', module: 'operator/etcd.ts', exported: 'etcd' }
const workspace: Subject = { folder: 'docs/examples/workspace', module: 'workspace.ts', exported: 'workspace' }
const tenant: Subject = {
  folder: 'docs/examples/tenant-database',
  module: 'tenant-database.ts',
  exported: 'tenantDatabase',
}

/** A bug that somebody could make: one expression in the source of an operator is another one. */
export interface Mutant {
  bug: string
  of: Subject
  file: string
  from: string
  to: string
  scenario: Scenario
  /** The beginning of the name of the law that finds it. */
  law?: string
  /** Why no law can find it. */
  missed?: string
}

const NOW = '2030-01-01T00:00:00.000Z'

const template = ConfigMap.of({
  metadata: { name: 'defaults', namespace: 'platform', labels: { 'tenancy.example.com/template': '' } },
  data: { settings: '{{name}}' },
})
const workspaceScenario: Scenario = {
  objects: [
    Workspace.of({
      metadata: { name: 'team-a' },
      spec: { admins: 'a', template: { namespace: 'platform', name: 'defaults' }, expiresAfterSeconds: 3600 },
    }),
    template,
  ],
  now: NOW,
  finalizeSeconds: Infinity,
  steps: [['it expires', (world) => world.pass(3600)]],
}

const backupScenario: Scenario = {
  objects: [
    EtcdBackup.of({
      metadata: { name: 'example', namespace: 'default' },
      spec: {
        etcdEndpoints: ['http://prod-client:2379'],
        storageType: 'S3',
        s3: { path: 'bucket/etcd', awsSecret: 'aws' },
        backupPolicy: { backupIntervalInSecond: 3600, maxBackups: 3 },
      },
    }),
  ],
  now: NOW,
  steps: [
    ['the agent stores', (world) => endIfRunning(world, { ...STORED, time: NOW })],
    ['an hour passes', (world) => world.pass(3600)],
    ['the agent fails', (world) => endIfRunning(world, { error: 'no' })],
  ],
}

const etcdScenario: Scenario<typeof EtcdCluster, Clusters> = {
  objects: [cluster('ex', { size: 1 })],
  now: NOW,
  external: etcdModel(),
  cluster: (world) => kubelets(world),
  steps: [['three members are wanted', (world) => world.edit({ spec: { size: 3 } })]],
}

function endIfRunning(world: Simulation, report: object): void {
  if (world.list(Pod).some(({ status }) => status?.phase === undefined)) endAgent(world, report)
}

const SAME = 'decides the same on the same state'
const TWICE = 'writes nothing when it runs again'
const CRASH = 'comes to the same end if its process dies'
const REFUSED = 'comes to the same end if a write is refused'
const LEAVES = 'leaves nothing behind'
const REMADE = 'deletes nothing that is ready'
const TIMER = 'sets a timer for each time'
const ENDS = 'ends its finalizer within its limit'
const DUE = 'makes the Jobs that are due'
const FAILURE = 'shows the failure of a Job'
const OLDEST = 'deletes what has ended in the order of its age'
const AS_NEW = 'gives a changed object the access and the work'

const atIs = (which: keyof typeof atScenarios) => ({ of: at, scenario: atScenarios[which] })
const memcachedIs = { of: memcached, scenario: memcachedScenario }
const visitorsIs = { of: visitors, scenario: visitorsScenario }
const backupIs = { of: etcdBackup, scenario: backupScenario }
const etcdIs = { of: etcd, scenario: etcdScenario as Scenario }
const workspaceIs = { of: workspace, scenario: workspaceScenario }
const tenantIs = { of: tenant, scenario: tenantScenario as Scenario }

export const mutants: Mutant[] = [
  {
    ...atIs('that succeeds'),
    bug: 'no timer for the time of the command',
    file: 'at.ts',
    from: 'status: pending, requeueAt: due,',
    to: 'status: pending,',
    law: TIMER,
  },
  {
    ...atIs('that fails'),
    bug: 'no timer for the next attempt',
    file: 'at.ts',
    from: ', requeueAt: retryAt }',
    to: ' }',
    law: TIMER,
  },
  {
    ...atIs('that succeeds'),
    bug: 'no timer for the TTL',
    file: 'at.ts',
    from: '{ requeueAt: end }',
    to: '{}',
    law: TIMER,
  },
  {
    ...atIs('that takes too long'),
    bug: 'no timer for the deadline',
    file: 'at.ts',
    from: '{ requeueAfter: Math.max(0, left + graceOf(object)) }',
    to: '{}',
    law: TIMER,
  },
  {
    ...atIs('that fails'),
    bug: 'the last of the list is the latest pod',
    file: 'pod.ts',
    from: 'pods.filter(hasFailed).sort((one, other) => endOf(one) - endOf(other) || byName(one, other))',
    to: 'pods.filter(hasFailed)',
    law: SAME,
  },
  {
    ...atIs('that takes too long'),
    bug: 'FAILED although the pod that runs cannot be deleted',
    file: 'at.ts',
    from: 'return isRefused ? { apply } : {',
    to: 'return {',
    law: REFUSED,
  },
  {
    ...atIs('that succeeds'),
    bug: 'the name of a pod is made by the clock',
    file: 'pod.ts',
    from: '`${shortName(at, LONGEST_NAME - suffix.length)}${suffix}`',
    to: '`${at}-${Date.now()}${suffix}`',
    law: SAME,
  },
  {
    ...memcachedIs,
    bug: 'names in the order of the list',
    file: 'memcached.ts',
    from: 'metadata.name).sort(),',
    to: 'metadata.name),',
    law: SAME,
  },
  {
    ...memcachedIs,
    bug: 'what is rolled out is not returned any more',
    file: 'memcached.ts',
    from: 'apply: [deploymentFor(object)]',
    to: 'apply: rollout.isComplete ? [] : [deploymentFor(object)]',
    law: REMADE,
  },
  {
    ...memcachedIs,
    bug: 'its finalizer waits for ever',
    file: 'memcached.ts',
    from: "events: [{ type: 'Warning', reason: 'Deleting', message }],",
    to: 'requeueAfter: 60,',
    law: ENDS,
  },
  {
    ...memcachedIs,
    bug: 'the time of the run in a condition',
    file: 'memcached.ts',
    from: 'const message = `${ready} of ${spec.size} servers are ready`',
    to: 'const message = `${ready} of ${spec.size} servers are ready at ${Date.now()}`',
    law: SAME,
  },
  {
    ...visitorsIs,
    bug: 'the backend goes when the database is not ready',
    file: 'visitors.ts',
    from: 'rollouts.mysql.ready > 0 || deployments.backend || services.backend',
    to: 'rollouts.mysql.ready > 0',
    law: REMADE,
  },
  {
    ...visitorsIs,
    bug: 'the front end goes when the backend is not ready',
    file: 'visitors.ts',
    from: 'rollouts.backend.ready > 0 || deployments.frontend || services.frontend',
    to: 'rollouts.backend.ready > 0',
    law: REMADE,
  },
  {
    ...visitorsIs,
    bug: 'a password that is drawn in each run',
    file: 'database.ts',
    from: "usable(read('password')) ?? draw('password')",
    to: "draw('password')",
    law: TWICE,
  },
  {
    ...visitorsIs,
    bug: 'the first Deployment is the database',
    file: 'visitors.ts',
    from: 'const mysql = deployment(names.mysql)',
    to: 'const mysql = owned(Deployment)[0]',
    law: SAME,
  },
  {
    ...visitorsIs,
    bug: 'the first Service is that of the backend',
    file: 'visitors.ts',
    from: 'backend: service(names.backendService)',
    to: 'backend: owned(Service)[0]',
    law: SAME,
  },
  {
    ...visitorsIs,
    bug: 'the front end goes while the port of the backend is not known',
    file: 'web.ts',
    from: 'backendEnv(object, backend) ?? backendEnvIn(observed)',
    to: 'backendEnv(object, backend)',
    law: REMADE,
  },
  {
    ...backupIs,
    bug: 'no timer for a pod whose node is lost',
    file: 'backup/etcd-backup.ts',
    from: ', requeueAt: lostAt }',
    to: ' }',
    law: TIMER,
  },
  {
    ...backupIs,
    bug: 'no timer for the next backup',
    file: 'backup/etcd-backup.ts',
    from: 'return { conditions, requeueAt: due }',
    to: 'return { conditions }',
    law: TIMER,
  },
  {
    ...backupIs,
    bug: 'the pod of a backup is named by the time',
    file: 'backup/etcd-backup.ts',
    from: 'tryOf([uid, generation, status.lastSuccessDate, failures])',
    to: 'tryOf([uid, generation, `${Date.now()}`, failures])',
    law: SAME,
  },
  {
    ...backupIs,
    bug: 'a pod that is under way is not returned',
    file: 'backup/etcd-backup.ts',
    from: 'return { apply: [pod], conditions: isShown',
    to: 'return { apply: [], conditions: isShown',
    law: SAME,
  },
  {
    ...backupIs,
    bug: 'failures are counted in each run',
    file: 'backup/agent-runs.ts',
    from: 'lastPod: pod.metadata.name,',
    to: '',
    law: SAME,
  },
  {
    ...etcdIs,
    bug: 'the name of a member is made by the clock',
    file: 'operator/replacement.ts',
    from: 'nextName(object, leader.answer.index)',
    to: 'nextName(object, `${Date.now()}`)',
    law: SAME,
  },
  {
    ...etcdIs,
    bug: 'pods are deleted before a quorum has confirmed who is a member',
    file: 'operator/decide.ts',
    from: '(clusterID === undefined || isMember(pod)) && !drop',
    to: '(members !== undefined && isMember(pod)) && !drop',
    law: SAME,
  },
  {
    ...workspaceIs,
    bug: 'no timer for the expiry',
    file: 'workspace.ts',
    from: '{ ...outcome, requeueAt: expiresAt }',
    to: 'outcome',
    law: TIMER,
  },
  {
    ...workspaceIs,
    bug: 'the settings go when the template is away',
    file: 'workspace.ts',
    from: "return run.owned(ConfigMap).find((one) => one.metadata.name === 'settings')?.data",
    to: 'return undefined',
    law: REMADE,
  },
  {
    ...workspaceIs,
    bug: 'a record for each try',
    file: 'workspace.ts',
    from: 'name: `workspace-${workspace}-${uid}`',
    to: 'name: `workspace-${workspace}-${Date.now()}`',
    law: SAME,
  },
  {
    ...workspaceIs,
    bug: 'what an archived Workspace retains is not retained',
    file: 'workspace.ts',
    from: '({ ...part, retain: true })',
    to: '({ ...part })',
    missed: 'what is to be retained is a choice of the author: the law knows only what the function retains',
  },
  {
    ...tenantIs,
    bug: 'the first Deployment is the database',
    file: 'tenant-database.ts',
    from: "[serviceOf(object, 'app'), applicationOf(object, version)],",
    to: "owned(Deployment)[0]?.status?.readyReplicas ? [serviceOf(object, 'app'), applicationOf(object, version)] : [],",
    law: SAME,
  },
  {
    ...tenantIs,
    bug: 'one policy stands for all of them',
    file: 'tenant-database.ts',
    from: '...policiesOf(object),',
    to: '...(owned(NetworkPolicy).length > 0 ? owned(NetworkPolicy) : policiesOf(object)),',
    law: CRASH,
  },
  {
    ...tenantIs,
    bug: 'a finalizer that waits for what was never begun',
    file: 'tenant-database.ts',
    from: 'if (migratedTo === undefined) return undefined',
    to: 'if (migratedTo === undefined) return { requeueAfter: 60 }',
    law: LEAVES,
  },
  {
    ...tenantIs,
    bug: 'the application goes when the database is not ready',
    file: 'tenant-database.ts',
    from: "[serviceOf(object, 'app'), applicationOf(object, version)],",
    to: "owned(Deployment).some(({ metadata, status }) => metadata.name === namesOf(object).db && status?.readyReplicas) ? [serviceOf(object, 'app'), applicationOf(object, version)] : [],",
    law: REMADE,
  },
  {
    ...tenantIs,
    bug: 'a password that is drawn in each run',
    file: 'parts.ts',
    from: "if (data?.['password'] !== undefined)",
    to: 'if (data === null)',
    law: TWICE,
  },
  {
    ...tenantIs,
    bug: 'the Job of a backup is named by the time',
    file: 'tenant-database.ts',
    from: "toolOf(object, names.backup(today), ['backup', today])",
    to: "toolOf(object, names.backup(`${now.getTime()}`), ['backup', today])",
    law: TWICE,
  },
  {
    ...tenantIs,
    bug: 'no timer for the next backup',
    file: 'tenant-database.ts',
    from: '      requeueAt: next,\n',
    to: '',
    law: TIMER,
  },
  {
    ...tenantIs,
    bug: 'a finalizer without a limit',
    file: 'tenant-database.ts',
    from: 'endOf(job) === undefined && now < deadline',
    to: 'endOf(job) === undefined',
    law: ENDS,
  },
  {
    ...tenantIs,
    bug: 'a finalizer that deletes what it has waited for',
    file: 'tenant-database.ts',
    from: "if (endOf(job) === 'Complete') return { apply: all(dayOf(now)) }",
    to: "if (endOf(job) === 'Complete') return { apply: [recordOf(object, dayOf(now))] }",
    law: REMADE,
  },
  {
    ...tenantIs,
    bug: 'the next backup is a day after the run',
    file: 'tenant-database.ts',
    from: 'const next = new Date(due.getTime() + DAY_MS)',
    to: 'const next = new Date(now.getTime() + DAY_MS)',
    law: TWICE,
  },
  {
    ...tenantIs,
    bug: 'the Job of a migration is named without the version',
    file: 'parts.ts',
    from: 'migrate: (version: string) => `${name}-migrate-${version}`',
    to: 'migrate: (_: string) => `${name}-migrate`',
    law: DUE,
  },
  {
    ...tenantIs,
    bug: 'the policies of teams that have left are kept',
    file: 'tenant-database.ts',
    from: '...policiesOf(object),',
    to: '...Object.values(Object.fromEntries([...owned(NetworkPolicy), ...policiesOf(object)].map((one) => [one.metadata.name, one]))),',
    law: AS_NEW,
  },
  {
    ...tenantIs,
    bug: 'the newest backups are deleted',
    file: 'tenant-database.ts',
    from: 'one.metadata.name.localeCompare(other.metadata.name)',
    to: 'other.metadata.name.localeCompare(one.metadata.name)',
    law: OLDEST,
  },
  {
    ...tenantIs,
    bug: 'the oldest backups are kept, so that no more is made',
    file: 'tenant-database.ts',
    from: 'jobs.slice(-KEPT)',
    to: 'jobs.slice(0, KEPT)',
    law: DUE,
  },
  {
    ...tenantIs,
    bug: 'Migrating although the migration has failed',
    file: 'tenant-database.ts',
    from: 'return { ...order, migratedTo',
    to: "return { ...order, condition: { ...order.condition, reason: 'Known', message: '' }, migratedTo",
    law: FAILURE,
  },
  {
    ...tenantIs,
    bug: 'the hour of the backup is one of the time zone of the process',
    file: 'tenant-database.ts',
    from: 'today.setUTCHours(',
    to: 'today.setHours(',
    law: SAME,
  },
  {
    ...tenantIs,
    bug: 'the version is in the selectors of Services and Deployments',
    file: 'parts.ts',
    from: 'const labelsOf = ({ metadata: { name } }: Tenant, tier: Tier) => ({ tenant: name, tier })',
    to: 'const labelsOf = ({ metadata: { name }, spec: { version } }: Tenant, tier: Tier) => ({ tenant: name, tier, version })',
    law: AS_NEW,
  },
  {
    ...tenantIs,
    bug: 'the application goes while another version is migrated',
    file: 'tenant-database.ts',
    from: "[serviceOf(object, 'app'), applicationOf(object, version)],",
    to: "migratedTo === undefined || migratedTo === version ? [serviceOf(object, 'app'), applicationOf(object, version)] : [],",
    law: REMADE,
  },
  {
    ...tenantIs,
    bug: 'Running before the application is ready',
    file: 'tenant-database.ts',
    from: "'Migrating', 'Starting', 'Running'] as const",
    to: "'Migrating', 'Running', 'Running'] as const",
    missed: 'what a phase means is a choice of the author: a table of `given` finds it',
  },
]

/** Returns the error of each law that the mutant breaks, by the law. With a law: of that one alone. */
export async function brokenBy({ of, file, from, to, scenario }: Mutant, law = ''): Promise<Record<string, Error>> {
  await mkdir('build', { recursive: true })
  const dir = await mkdtemp(join(process.cwd(), 'build/mutant-'))
  try {
    await cp(of.folder, dir, {
      recursive: true,
      filter: (path) => !/node_modules|package\.json$|\.test\.ts$/.test(path),
    })
    const source = await readFile(join(dir, file), 'utf8')
    const { length } = source.split(from)
    if (length !== 2) throw new Error(`${of.folder}/${file} has ${length - 1} times, instead of once: ${from}`)
    await writeFile(
      join(dir, file),
      source.replace(from, () => to),
    )
    const module = (await import(join(dir, of.module))) as Record<string, Reconciler>
    const rows = lawsOf(module[of.exported] as Reconciler, scenario).filter(([name]) => name.startsWith(law))
    const broken: Record<string, Error> = {}
    for (const [name, holds] of rows) await holds().catch((error: unknown) => (broken[name] = error as Error))
    return broken
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}
