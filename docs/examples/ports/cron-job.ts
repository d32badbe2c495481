import { CronExpressionParser } from 'cron-parser'
import { type ConditionUpdate, Job, named, type ObservedBy, readinessOf, reconciler, resource, z } from 'fairlead'

const limit = z.int32().min(0)
const texts = z.record(z.string(), z.string()).optional()

/** Runs a Job at the times of a schedule. */
export const CronJob = resource({
  group: 'batch.tutorial.kubebuilder.io',
  version: 'v1',
  kind: 'CronJob',
  plural: 'cronjobs',
  spec: z.object({
    schedule: z.string().min(1).describe('In the format of cron, in UTC.'),
    startingDeadlineSeconds: limit.optional().describe('How late a Job may start. Left out: however late.'),
    concurrencyPolicy: z
      .enum(['Allow', 'Forbid', 'Replace'])
      .default('Allow')
      .describe('Whether a Job starts while the one before runs, waits for its end, or replaces it.'),
    suspend: z.boolean().default(false).describe('No Job starts. One that runs goes on.'),
    jobTemplate: z.object({
      metadata: z.object({ labels: texts, annotations: texts }).optional(),
      spec: z.looseObject({}).describe('The spec of a Job.'),
    }),
    successfulJobsHistoryLimit: limit.default(3).describe('How many complete Jobs are kept.'),
    failedJobsHistoryLimit: limit.default(1).describe('How many failed Jobs are kept.'),
  }),
  status: z.object({
    active: z.array(z.object({ name: z.string(), uid: z.string() })).describe('The Jobs that run.'),
    lastScheduleTime: z.string().optional(),
  }),
  rules: [named(/^.{1,52}$/, { message: 'the names of its Jobs have 11 characters more, and 63 at most' })],
  columns: [
    { name: 'Schedule', path: '.spec.schedule' },
    { name: 'Suspend', path: '.spec.suspend', type: 'boolean' },
    { name: 'Last', path: '.status.lastScheduleTime', type: 'date' },
  ],
})
type Cron = ReturnType<typeof CronJob.parse>
type JobObject = ObservedBy<typeof Job>

const SCHEDULED_AT = 'batch.tutorial.kubebuilder.io/scheduled-at'
const scheduledAt = ({ metadata }: JobObject): string => metadata.annotations?.[SCHEDULED_AT] ?? ''

/** The newest Jobs that have ended in this way. */
const newest = (jobs: readonly JobObject[], ended: (job: JobObject) => boolean, most: number): JobObject[] =>
  jobs
    .filter(ended)
    .toSorted((one, other) => scheduledAt(other).localeCompare(scheduledAt(one)))
    .slice(0, most)

function jobOf({ metadata, spec: { jobTemplate } }: Cron, time: Date): JobObject {
  const annotations = { ...jobTemplate.metadata?.annotations, [SCHEDULED_AT]: time.toISOString() }
  return Job.of({
    metadata: { ...jobTemplate.metadata, annotations, name: `${metadata.name}-${time.getTime() / 1000}` },
    spec: jobTemplate.spec as NonNullable<JobObject['spec']>,
  })
}

/** The last time of the schedule, and the next one. */
function timesOf({ spec }: Cron, now: Date): { last: Date; next: Date } | { error: string } {
  // A time that is due at this very moment is the last one, not the next.
  const at = { currentDate: new Date(now.getTime() + 1), tz: 'UTC' }
  try {
    const [last, next] = [CronExpressionParser.parse(spec.schedule, at), CronExpressionParser.parse(spec.schedule, at)]
    return { last: last.prev().toDate(), next: next.next().toDate() }
  } catch (error) {
    return { error: (error as Error).message }
  }
}

const ready = (status: 'True' | 'False', reason: string, message = ''): ConditionUpdate[] => [
  { type: 'Ready', status, reason, message },
]

export const cronJob = reconciler({
  name: 'cron-job',
  for: CronJob,
  owns: [Job],
  reconcile({ object, owned, now }) {
    const { metadata, spec, status } = object
    const jobs = owned(Job)
    const isComplete = (job: JobObject) => readinessOf(job).isReady
    const isFailed = (job: JobObject) => readinessOf(job).isFailed
    const active = jobs.filter((job) => !isComplete(job) && !isFailed(job))
    const kept = [
      ...newest(jobs, isComplete, spec.successfulJobsHistoryLimit),
      ...newest(jobs, isFailed, spec.failedJobsHistoryLimit),
    ]
    const lastScheduleTime = [status.lastScheduleTime ?? '', ...jobs.map(scheduledAt)].sort().at(-1) || undefined
    const running = active.map(({ metadata: { name, uid = '' } }) => ({ name, uid }))
    const known = { status: { active: running.sort((a, b) => a.name.localeCompare(b.name)), lastScheduleTime } }
    const failed = newest(jobs, (job) => isComplete(job) || isFailed(job), 1).some(isFailed)
    const conditions = failed ? ready('False', 'JobFailed') : ready('True', spec.suspend ? 'Suspended' : 'Scheduled')
    const apply = [...kept, ...active]
    if (spec.suspend) return { ...known, apply, conditions }
    const times = timesOf(object, now)
    if ('error' in times) return { ...known, apply, conditions: ready('False', 'InvalidSchedule', times.error) }
    const { last, next } = times
    const deadline = spec.startingDeadlineSeconds ?? Number.POSITIVE_INFINITY
    const isNew = last > new Date(lastScheduleTime ?? metadata.creationTimestamp ?? now)
    const isDue = isNew && now.getTime() - last.getTime() <= deadline * 1000
    const idle = { ...known, apply, conditions, requeueAt: next }
    if (!isDue || (active.length > 0 && spec.concurrencyPolicy === 'Forbid')) return idle
    // The Job that is replaced goes first: this function is called again when it is gone.
    if (active.length > 0 && spec.concurrencyPolicy === 'Replace') return { ...idle, apply: kept }
    return { ...idle, apply: [...apply, jobOf(object, last)] }
  },
})
