import { resource, z } from 'fairlead'

/** The Memcached of operator-sdk's samples, with the fields of its first version and of its present one. */
export const Memcached = resource({
  group: 'cache.example.com',
  version: 'v1alpha1',
  kind: 'Memcached',
  plural: 'memcacheds',
  shortNames: ['mc'],
  spec: z
    .object({
      size: z.int32().min(1).default(3).describe('How many memcached servers there are to be.'),
      oddSize: z.boolean().optional().describe('Refuse an even size.'),
      containerPort: z.int32().min(1).max(65_535).default(11_211).describe('Where each server listens.'),
      image: z.string().min(1).default('memcached:1.6-alpine'),
      memoryMegabytes: z.int32().min(1).max(1_000_000).default(64).describe('For the items of each server.'),
    })
    .meta({
      'x-kubernetes-validations': [
        {
          rule: '!has(self.oddSize) || !self.oddSize || self.size % 2 == 1',
          message: 'with oddSize, size must be an odd number',
        },
      ],
    }),
  status: z.object({
    nodes: z.array(z.string()).describe('Names of the pods that live, sorted.'),
    replicas: z.int32(),
    readyReplicas: z.int32(),
    selector: z.string().describe('Matches the pods of this Memcached and of no other.'),
    image: z.string().optional().describe('That its servers run, once all of them do.'),
  }),
  scale: { spec: '.spec.size', status: '.status.replicas', selector: '.status.selector' },
  columns: [
    { name: 'Size', path: '.spec.size', type: 'integer' },
    { name: 'Ready', path: '.status.readyReplicas', type: 'integer' },
    { name: 'Available', path: '.status.conditions[?(@.type=="Available")].status' },
    { name: 'Image', path: '.status.image', priority: 1 },
  ],
})

export type MemcachedObject = ReturnType<typeof Memcached.parse>
