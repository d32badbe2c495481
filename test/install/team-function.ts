/** A function of a team, which makes a ConfigMap for each Shop of its namespace. */
import { ConfigMap, reconciler, resource, z } from '#sdk'

export const Shop = resource({
  group: 'shop.example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({}),
  status: z.object({ phase: z.string() }),
})

export const shop = reconciler({
  name: 'shop',
  for: Shop,
  owns: [ConfigMap],
  namespaces: ['shop', 'shop-test'],
  concurrency: 16,
  reconcile: ({ object }) => ({
    apply: [ConfigMap.of({ metadata: { name: object.metadata.name }, data: {} })],
    status: { phase: 'OPEN' },
  }),
})
