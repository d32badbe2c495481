import { z } from 'zod'

const condition = z.object({
  type: z.string().min(1).max(316),
  status: z.enum(['True', 'False', 'Unknown']),
  reason: z.string().min(1).max(1024),
  message: z.string().max(32768).optional(),
  lastTransitionTime: z.iso.datetime({ offset: true }),
  observedGeneration: z.int().min(0).optional(),
})

/** The part of every status that the dispatcher keeps; conditions are those of metav1. */
export const keptStatus = z.object({
  observedGeneration: z
    .int()
    .min(0)
    .optional()
    .describe('The generation of the object that this status was decided on.'),
  conditions: z
    .array(condition)
    .optional()
    .meta({ 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['type'] }),
})

export type KeptStatus = z.output<typeof keptStatus>
