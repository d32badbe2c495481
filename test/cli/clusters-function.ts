/** A function that shows in which cluster it runs, and comes back in an hour. */
import { reconciler, resource, z } from '#sdk'

export const Place = resource({
  group: 'places.example.com',
  version: 'v1',
  kind: 'Place',
  plural: 'places',
  spec: z.object({ size: z.int32() }),
  status: z.object({ size: z.int32(), cluster: z.string(), id: z.string(), tier: z.string() }),
})

export const place = reconciler({
  name: 'place',
  for: Place,
  changes: ['Generation'],
  reconcile: ({ object: { spec }, cluster: { name, id, labels } }) => ({
    status: { size: spec.size, cluster: name, id, tier: labels['tier'] ?? '' },
    requeueAfter: 3600,
  }),
})
