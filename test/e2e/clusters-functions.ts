/** A function that has one ConfigMap for each Item, and comes back as often as its object asks for. */
import { ConfigMap, reconciler, resource, z } from '#sdk'

export const Item = resource({
  group: 'clusters.example.com',
  version: 'v1',
  kind: 'Item',
  plural: 'items',
  spec: z.object({ size: z.int32(), everySeconds: z.int32().optional() }),
  status: z.object({ size: z.int32(), at: z.string() }),
})

export const item = reconciler({
  name: 'item',
  for: Item,
  owns: [ConfigMap],
  // Without a run for its own status.
  changes: ['Generation'],
  reconcile: ({ object: { metadata, spec }, now }) => ({
    apply: [ConfigMap.of({ metadata: { name: metadata.name }, data: { size: String(spec.size) } })],
    // Each run has to write.
    status: { size: spec.size, at: now.toISOString() },
    ...(spec.everySeconds !== undefined && { requeueAfter: spec.everySeconds }),
  }),
})
