import { Deployment, reconciler, resource, rolloutOf, z } from 'fairlead'

export const Website = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Website',
  plural: 'websites',
  spec: z.object({ image: z.string(), replicas: z.int32().default(2) }),
  status: z.object({ ready: z.int32() }),
  columns: [
    { name: 'Ready', path: '.status.ready', type: 'integer' },
    { name: 'Status', path: '.status.conditions[?(@.type=="Ready")].reason', type: 'string' },
  ],
})

export const website = reconciler({
  name: 'website',
  for: Website,
  owns: [Deployment],
  reconcile({ object: { metadata, spec }, owned }) {
    const { name } = metadata
    const labels = { app: name }
    const template = { metadata: { labels }, spec: { containers: [{ name: 'web', image: spec.image }] } }
    const { ready, isComplete } = rolloutOf(owned(Deployment)[0])
    return {
      apply: [
        Deployment.of({
          metadata: { name },
          spec: { replicas: spec.replicas, selector: { matchLabels: labels }, template },
        }),
      ],
      status: { ready },
      conditions: [
        { type: 'Ready', status: isComplete ? 'True' : 'False', reason: isComplete ? 'Serving' : 'Starting' },
      ],
    }
  },
})
