import { z } from 'zod'
import { resource } from '#sdk'

/** The At of cnat. Like the original, its schema admits any text: what is wrong with it is reported on the object. */
export const At = resource({
  group: 'cnat.programming-kubernetes.info',
  version: 'v1alpha1',
  kind: 'At',
  plural: 'ats',
  spec: z.object({
    schedule: z
      .string()
      .optional()
      .describe('When to run: RFC 3339, e.g. 2019-04-12T10:12:00Z. A time in the past is due at once.'),
    command: z
      .string()
      .optional()
      .describe('What to run in a busybox container, split at single spaces: no shell, no quoting.'),
  }),
  status: z.object({
    phase: z
      .enum(['PENDING', 'RUNNING', 'DONE'])
      .describe('PENDING until the time has come, RUNNING until the pod has ended, then DONE.'),
  }),
  columns: [
    { name: 'Schedule', path: '.spec.schedule' },
    { name: 'Phase', path: '.status.phase' },
  ],
})
