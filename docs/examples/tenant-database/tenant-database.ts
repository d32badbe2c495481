import {
  type ConditionUpdate,
  ConfigMap,
  Deployment,
  Job,
  type KubeObject,
  NetworkPolicy,
  PersistentVolumeClaim,
  type Run,
  reconciler,
  rolloutOf,
  Secret,
  Service,
} from 'fairlead'
import {
  applicationOf,
  credentialsOf,
  databaseOf,
  endOf,
  type JobObject,
  namesOf,
  policiesOf,
  recordOf,
  serviceOf,
  toolOf,
  volumeOf,
} from './parts.ts'
import { type Tenant, TenantDatabase } from './resource.ts'

const owns = [Secret, ConfigMap, PersistentVolumeClaim, Service, NetworkPolicy, Deployment, Job] as const
type TenantRun = Run<typeof TenantDatabase, (typeof owns)[number], never>

const DAY_MS = 86_400_000
/** So many backups are kept. */
const KEPT = 3
/** How long a deletion waits for the last backup. */
const LAST_BACKUP_S = 600

/** Runs the database of a tenant: first the database, then the migration of its tables, then the application. */
export const tenantDatabase = reconciler({
  name: 'tenant-database',
  for: TenantDatabase,
  owns,
  reconcile(run) {
    const { jobs, lastBackup, next } = backupsOf(run)
    const { version, apply } = stagesOf(run)
    const phase = phaseOf(run, version)
    return {
      apply: [...apply, ...jobs, recordOf(run.object, lastBackup)],
      status: { phase, migratedTo: version, lastBackup, nextBackup: next.toISOString() },
      conditions: [readiness(phase)],
      requeueAt: next,
    }
  },
  finalize(run) {
    const { object, now } = run
    const { lastBackup, migratedTo } = object.status
    if (migratedTo === undefined) return undefined
    const { apply } = stagesOf(run)
    const name = namesOf(object).lastBackup
    const job = jobNamed(run, name)
    // What is left out would be deleted and, since this function is called again, looked for.
    const all = (last: string | undefined) => [
      ...apply,
      job ?? toolOf(object, name, ['backup', 'last']),
      recordOf(object, last),
    ]
    if (endOf(job) === 'Complete') return { apply: all(dayOf(now)) }
    const deadline = new Date(Date.parse(object.metadata.deletionTimestamp ?? '') + LAST_BACKUP_S * 1000)
    if (endOf(job) === undefined && now < deadline)
      return {
        apply: all(lastBackup),
        status: { phase: 'Deleting', migratedTo, lastBackup },
        conditions: [readiness('Deleting')],
        requeueAt: deadline,
      }
    const message = `there is no last backup: its Job has ${job && endOf(job) ? 'failed' : 'not ended in time'}`
    return { apply: all(lastBackup), events: [{ type: 'Warning', reason: 'LastBackupMissing', message }] }
  },
})

const jobNamed = ({ owned }: TenantRun, name: string): JobObject | undefined =>
  owned(Job).find(({ metadata }) => metadata.name === name)

const rolloutNamed = ({ owned }: TenantRun, name: string) =>
  rolloutOf(owned(Deployment).find(({ metadata }) => metadata.name === name))

/**
 * Returns the objects in their order: each stage waits for the one before it. A stage that was reached stays: a database
 * that starts again, or a Job that somebody deletes, stops no application. `version` is that of the tables.
 */
function stagesOf(run: TenantRun): { version: string | undefined; apply: KubeObject[] } {
  const { object, owned, secret } = run
  const names = namesOf(object)
  const apply: KubeObject[] = [
    credentialsOf(object, owned(Secret)[0], secret),
    owned(PersistentVolumeClaim)[0] ?? volumeOf(object),
    serviceOf(object, 'db'),
    databaseOf(object),
    ...policiesOf(object),
  ]
  const { version: wanted } = object.spec
  const { migratedTo } = object.status
  const migration = jobNamed(run, names.migrate(wanted))
  const isReady = rolloutNamed(run, names.db).isComplete
  if (migration !== undefined) apply.push(migration)
  else if (isReady && migratedTo !== wanted) apply.push(toolOf(object, names.migrate(wanted), ['migrate', wanted]))
  const version = endOf(migration) === 'Complete' ? wanted : migratedTo
  if (version !== undefined) apply.push(serviceOf(object, 'app'), applicationOf(object, version))
  return { version, apply }
}

function phaseOf(run: TenantRun, version: string | undefined): Tenant['status']['phase'] & string {
  const names = namesOf(run.object)
  const { version: wanted } = run.object.spec
  if (endOf(jobNamed(run, names.migrate(wanted))) === 'Failed') return 'Failed'
  if (version !== wanted) return rolloutNamed(run, names.db).isComplete ? 'Migrating' : 'Provisioning'
  return [names.db, names.app].every((name) => rolloutNamed(run, name).isComplete) ? 'Running' : 'Starting'
}

const readiness = (phase: string): ConditionUpdate => ({
  type: 'Ready',
  status: phase === 'Running' ? 'True' : 'False',
  reason: phase,
})

interface Backups {
  /** The Jobs of the last backups, and of the one that is due. */
  jobs: JobObject[]
  lastBackup: string | undefined
  next: Date
}

/** Returns the backups of the last days. One that is due is made once, also if its time was missed. */
function backupsOf(run: TenantRun): Backups {
  const { object, owned, now } = run
  const { metadata, spec, status } = object
  const names = namesOf(object)
  const due = lastTimeOf(spec.backupHour, now)
  const next = new Date(due.getTime() + DAY_MS)
  const today = dayOf(due)
  const known = owned(Job)
    .filter(({ metadata: { name } }) => name.startsWith(names.backup('')))
    .sort((one, other) => one.metadata.name.localeCompare(other.metadata.name))
  const complete = known.filter((job) => endOf(job) === 'Complete').map((job) => dayIn(job))
  const lastBackup = [...complete, ...(status.lastBackup === undefined ? [] : [status.lastBackup])].sort().at(-1)
  const isDue = status.migratedTo !== undefined && due >= new Date(metadata.creationTimestamp ?? '')
  const isMade = lastBackup === today || known.some((job) => dayIn(job) === today)
  const jobs = isDue && !isMade ? [...known, toolOf(object, names.backup(today), ['backup', today])] : known
  return { jobs: jobs.slice(-KEPT), lastBackup, next }
}

/** Returns the last time at which clocks in UTC have shown this hour. */
function lastTimeOf(hour: number, now: Date): Date {
  const today = new Date(now)
  today.setUTCHours(hour, 0, 0, 0)
  return today <= now ? today : new Date(today.getTime() - DAY_MS)
}

/** 20300101 */
const dayOf = (time: Date): string => time.toISOString().slice(0, 10).replaceAll('-', '')
const dayIn = ({ metadata: { name } }: JobObject): string => name.slice(-8)
