/** A function with a rate of its own, and two that share one in the settings of their processes. */
import { reconciler, resource, z } from '#sdk'

const paced = (kind: string, rate: { runRate?: { perSecond: number; burst: number } } = {}) =>
  reconciler({
    name: kind.toLowerCase(),
    for: resource({
      group: 'paced.example.com',
      version: 'v1',
      kind,
      plural: `${kind.toLowerCase()}s`,
      spec: z.object({}),
      status: z.object({ seen: z.boolean() }),
    }),
    // Without a run for its own status.
    changes: ['Generation'],
    ...rate,
    reconcile: () => ({ status: { seen: true } }),
  })

export const OWN = { perSecond: 6, burst: 4 }
export const OF_TEAM = { perSecond: 8, burst: 4 }

export const single = paced('Single', { runRate: OWN })
export const left = paced('Left')
export const right = paced('Right')
