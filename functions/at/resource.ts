import { type ReconcileOutcome, resource, z } from 'fairlead'

const statusSchema = z.object({
  phase: z
    .enum(['PENDING', 'RUNNING', 'DONE', 'FAILED'])
    .describe('PENDING until the time has come, RUNNING until it has ended, then DONE or FAILED for ever.'),
  scheduledTime: z.string().optional().describe('When it is due, in UTC.'),
  startTime: z.string().optional(),
  completionTime: z.string().optional(),
  podName: z.string().optional().describe('Pod of the latest attempt.'),
  failures: z.int32().optional().describe('Attempts that have failed.'),
  exitCode: z.int32().optional().describe('Exit code of the latest attempt that has ended.'),
  reason: z.string().optional().describe('Why it does not start, or has failed.'),
  message: z.string().optional(),
})

const seconds = z.int().min(0).max(2_147_483_647)
const anything = { 'x-kubernetes-preserve-unknown-fields': true } as const

/**
 * The At of cnat, with additional fields that users of at(1), Job and CronJob expect. As in the original, the schema
 * accepts any text: errors are reported on the object.
 */
export const At = resource({
  group: 'cnat.programming-kubernetes.info',
  version: 'v1alpha1',
  kind: 'At',
  plural: 'ats',
  spec: z.object({
    schedule: z
      .string()
      .optional()
      .describe(
        'When to run: RFC 3339, e.g. 2019-04-12T10:12:00Z, or with timeZone a local time, e.g. 2019-04-12T10:12:00. A time in the past is due at once.',
      ),
    timeZone: z
      .string()
      .optional()
      .describe(
        'IANA name, e.g. Europe/Berlin, of a schedule without offset. Where clocks go back the first of both times counts; a time that they skip is read with the offset before.',
      ),
    command: z
      .string()
      .optional()
      .describe('What to run: split at single spaces, without quoting; see shell and args.'),
    shell: z
      .boolean()
      .optional()
      .describe('Give the command to /bin/sh -c: quotes, pipes and variables work. The args are then $1, $2, …'),
    args: z.array(z.string()).optional().describe('Arguments after the command, each taken as it is.'),
    template: z
      .object({
        metadata: z
          .object({
            labels: z.record(z.string(), z.string()).optional(),
            annotations: z.record(z.string(), z.string()).optional(),
          })
          .optional(),
        spec: z
          .looseObject({})
          .optional()
          .meta(anything)
          .describe('A pod template. Its first container is merged into the one that runs the command.'),
      })
      .optional()
      .describe('What the pod has beside the command: image, environment, volumes, service account …'),
    backoffLimit: z
      .int32()
      .min(0)
      .max(1000)
      .default(6)
      .describe('How often a command that failed is tried again, in a new pod, after 10 s, 20 s, 40 s … 6 min.'),
    startingDeadlineSeconds: seconds
      .optional()
      .describe('How late it may start; later, it has failed. Left out: however late.'),
    activeDeadlineSeconds: seconds.min(1).optional().describe('How long it may run, all retries together.'),
    ttlSecondsAfterFinished: seconds
      .optional()
      .describe('How long after its end, DONE or FAILED, the At is deleted, and its pods with it. Left out: it stays.'),
    suspend: z.boolean().optional().describe('It does not start. One that has started goes on.'),
  }),
  status: statusSchema,
  columns: [
    { name: 'Schedule', path: '.spec.schedule' },
    { name: 'Phase', path: '.status.phase' },
    { name: 'Exit', path: '.status.exitCode', type: 'integer', priority: 1 },
    { name: 'Reason', path: '.status.reason', priority: 1 },
    { name: 'Pod', path: '.status.podName', priority: 1 },
  ],
})

export type AtObject = ReturnType<typeof At.parse>
export type AtSpec = AtObject['spec']
export type AtStatus = AtObject['status']
export type AtOutcome = ReconcileOutcome<z.input<typeof statusSchema>>
