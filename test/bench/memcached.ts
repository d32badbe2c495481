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

/** The smallest operator that owns something it keeps changing: the size becomes a Deployment's replicas. */
export const memcached = reconciler({
  name: 'memcached',
  for: Memcached,
  owns: [Deployment],
  reconcile({ object: { metadata, spec } }) {
    const labels = { app: metadata.name }
    const containers = [{ name: 'memcached', image: 'memcached:1.6' }]
    return {
      apply: [
        Deployment.of({
          metadata: { name: metadata.name },
          spec: {
            replicas: spec.size,
            selector: { matchLabels: labels },
            template: { metadata: { labels }, spec: { containers } },
          },
        }),
      ],
    }
  },
})
