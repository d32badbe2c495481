import { z } from 'zod'
import { Deployment, reconciler, resource } from '#sdk'

export const Memcached = resource({
  group: 'cache.example.com',
  version: 'v1alpha1',
  kind: 'Memcached',
  plural: 'memcacheds',
  spec: z.object({ size: z.int32().min(0) }),
  status: z.looseObject({}),
})

type MemcachedObject = ReturnType<typeof Memcached.parse>

/** The smallest operator that owns something it keeps changing: the size becomes a Deployment's replicas. */
export const memcached = reconciler({
  name: 'memcached',
  for: Memcached,
  owns: [Deployment],
  reconcile: ({ object }) => ({ apply: [deploymentFor(object)] }),
})

export function deploymentFor({ metadata: { name }, spec: { size } }: MemcachedObject) {
  const labels = { app: name }
  const containers = [{ name: 'memcached', image: 'memcached:1.6' }]
  return Deployment.of({
    metadata: { name },
    spec: {
      replicas: size,
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers } },
    },
  })
}
