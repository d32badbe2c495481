import { namedKind, readinessOf, reconciler, resource, z } from 'fairlead'

/** A part of a product: any object beside it, of any kind that an administrator has granted. */
const part = z.object({ apiVersion: z.string().min(1), kind: z.string().min(1), name: z.string().min(1) })

export const Product = resource({
  group: 'products.example.com',
  version: 'v1alpha1',
  kind: 'Product',
  plural: 'products',
  spec: z.object({ parts: z.array(part).max(50).default([]) }),
  status: z.object({ ready: z.string().optional().describe('How many parts are ready: 2/3.') }),
  columns: [{ name: 'Ready', path: '.status.ready' }],
})

const Part = namedKind({ kindPath: 'spec.parts[*]', byName: 'spec.parts[*].name' })

/** Reports whether all parts of a product are ready, and what the first one waits for. */
export const product = reconciler({
  name: 'product',
  for: Product,
  related: [Part],
  reconcile: ({ object: { spec }, related }) => {
    const parts = spec.parts.map((one) => {
      const found = related(Part).find(({ kind, metadata }) => kind === one.kind && metadata.name === one.name)
      return { ...one, ...readinessOf(found) }
    })
    const missing = parts.filter(({ isReady }) => !isReady)
    const [first] = missing
    return {
      status: { ready: `${parts.length - missing.length}/${parts.length}` },
      conditions: [
        {
          type: 'Ready',
          status: first ? 'False' : 'True',
          reason: first ? 'PartsMissing' : 'AllReady',
          message: first ? `${first.kind} ${first.name}: ${first.message}` : 'all parts are ready',
        },
      ],
    }
  },
})
