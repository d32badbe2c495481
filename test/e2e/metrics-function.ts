/** A function whose outcome changes metrics. It counts a size when the status does not have it yet. */
import { reconciler, resource, z } from '#sdk'

export const Parcel = resource({
  group: 'metrics.example.com',
  version: 'v1',
  kind: 'Parcel',
  plural: 'parcels',
  spec: z.object({ size: z.string(), grams: z.int32() }),
  status: z.object({ size: z.string().optional() }),
})

export const LAST_GRAMS = {
  name: 'last_grams',
  type: 'Gauge',
  help: 'Weight of the parcel that was seen last',
} as const

export const parcel = reconciler({
  name: 'parcel',
  for: Parcel,
  metrics: [
    { name: 'parcels_total', type: 'Counter', help: 'Parcels', labels: [{ name: 'size', values: ['small', 'large'] }] },
    LAST_GRAMS,
  ],
  reconcile: ({ object: { spec, status } }) => ({
    status: { size: spec.size },
    metrics: [
      ...(status?.size === spec.size ? [] : [{ name: 'parcels_total', labels: { size: spec.size } }]),
      { name: 'last_grams', value: spec.grams },
    ],
  }),
})
