import {
  type ConditionUpdate,
  ConfigMap,
  Deployment,
  Job,
  NetworkPolicy,
  PersistentVolumeClaim,
  type Run,
  reconciler,
  Secret,
  Service,
  type Staged,
  stages,
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
import { TenantDatabase } from './resource.ts'

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
    const { jobs, lastBackup, next, backedUp } = backupsOf(run)
    const order = orderOf(run)
    const phase = phaseOf(order)
    return {
      apply: [...order.apply, ...jobs, recordOf(run.object, lastBackup)],
      status: { phase, migratedTo: order.migratedTo, lastBackup, nextBackup: next.toISOString() },
      conditions: [{ ...order.condition, reason: phase }, ...backedUp],
      requeueAt: next,
    }
  },
  finalize(run) {
    const { object, now } = run
    const { lastBackup, migratedTo } = object.status
    if (migratedTo === undefined) return undefined
    const { apply } = orderOf(run)
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
        conditions: [{ type: 'Ready', status: 'False', reason: 'Deleting' }],
        requeueAt: deadline,
      }
    const message = `there is no last backup: its Job has ${job && endOf(job) ? 'failed' : 'not ended in time'}`
    return { apply: all(lastBackup), events: [{ type: 'Warning', reason: 'LastBackupMissing', message }] }
  },
})

const jobNamed = ({ owned }: TenantRun, name: string): JobObject | undefined =>
  owned(Job).find(({ metadata }) => metadata.name === name)

/**
 * First the database, then the migration of its tables, then the application. `migratedTo` records that a migration has
 * ended, so that its Job is not made again when somebody deletes it.
 */
function orderOf(run: TenantRun) {
  const { object, owned, secret } = run
  const { version } = object.spec
  const { migratedTo } = object.status
  const order = stages(run, [
    [
      credentialsOf(object, owned(Secret)[0], secret),
      owned(PersistentVolumeClaim)[0] ?? volumeOf(object),
      serviceOf(object, 'db'),
      databaseOf(object),
      ...policiesOf(object),
    ],
    {
      objects: [toolOf(object, namesOf(object).migrate(version), ['migrate', version])],
      isDone: migratedTo === version,
    },
    [serviceOf(object, 'app'), applicationOf(object, version)],
  ])
  return { ...order, migratedTo: order.reached > 1 ? version : migratedTo }
}

const PHASES = ['Provisioning', 'Migrating', 'Starting', 'Running'] as const

const phaseOf = ({ condition, reached }: Staged) =>
  condition.reason === 'Failed' ? 'Failed' : (PHASES[reached] ?? 'Running')

interface Backups {
  /** The Jobs of the last backups, and of the one that is due. */
  jobs: JobObject[]
  lastBackup: string | undefined
  next: Date
  /** The condition of the last backup that has ended. */
  backedUp: ConditionUpdate[]
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
  return { jobs: jobs.slice(-KEPT), lastBackup, next, backedUp: backedUpBy(known) }
}

function backedUpBy(known: readonly JobObject[]): ConditionUpdate[] {
  const last = known.findLast((job) => endOf(job) !== undefined)
  if (last === undefined) return []
  const isFailed = endOf(last) === 'Failed'
  const message = `Job ${last.metadata.name}`
  return [{ type: 'BackedUp', status: isFailed ? 'False' : 'True', reason: isFailed ? 'Failed' : 'Complete', message }]
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
