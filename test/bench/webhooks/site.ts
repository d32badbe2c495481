import { moved, reconciler, resource, z } from '#sdk'

const MOST_WEIGHT = 1000
/** So many make an object of 10 kB. */
const ROUTES = 88

const routes = z.array(z.object({ name: z.string(), path: z.string(), backend: z.string(), weight: z.int32() }))
const limits = { least: z.int32(), most: z.int32() }
const names = { group: 'webhooks.bench.test', version: 'v1' } as const
const spec = z.object({ http: z.object({ url: z.string(), timeoutMs: z.int32() }), ...limits, routes })
const status = z.object({ tick: z.string() })
/** In CEL: the API server checks it itself. */
const validations = [{ rule: 'self.spec.least <= self.spec.most', message: 'spec.least is above spec.most' }]

/** What both sides serve. operator/ has the same types, conversion and checks in Go. */
export const Site = resource({
  ...names,
  kind: 'Site',
  plural: 'sites',
  spec,
  status,
  validations,
  served: [
    {
      version: 'v1beta1',
      spec: z.object({ url: z.string(), timeoutMs: z.int32(), ...limits, routes }),
      validations,
      convert: [moved('.spec.url', '.spec.http.url'), moved('.spec.timeoutMs', '.spec.http.timeoutMs')],
    },
  ],
  validate: ({ spec: { http, routes: all } }) => [
    ...(URL.canParse(http.url) ? [] : [{ path: '.spec.http.url', message: 'it is no URL' }]),
    ...(new Set(all.map(({ path }) => path)).size < all.length
      ? [{ path: '.spec.routes', message: 'two routes have one path' }]
      : []),
    ...(all.reduce((sum, { weight }) => sum + weight, 0) > MOST_WEIGHT
      ? [{ path: '.spec.routes', message: `the weights are above ${MOST_WEIGHT} together` }]
      : []),
  ],
})

/** The same without a webhook. */
export const Plain = resource({
  ...names,
  kind: 'Plain',
  plural: 'plains',
  spec,
  status,
  validations,
})

/** Its status follows a label, which no webhook is asked about. */
export const site = reconciler({
  name: 'site',
  for: Site,
  reconcile: ({ object }) => ({ status: { tick: object.metadata.labels?.['tick'] ?? '' } }),
})

/** A Site, or a Plain, of 10 kB in the stored version. */
export const siteOf = (kind: 'Site' | 'Plain', name: string) => ({
  apiVersion: `${names.group}/${names.version}`,
  kind,
  metadata: { name },
  spec: {
    http: { url: `https://${name}.example.com`, timeoutMs: 0 },
    least: 1,
    most: 3,
    routes: Array.from({ length: ROUTES }, (_, index) => ({
      name: `route-${index}`,
      path: `/shop/catalogue/${index}`,
      backend: `backend-${index}.shop.svc.cluster.local:8080`,
      weight: 5,
    })),
  },
})

export const NAMESPACE = 'default'
