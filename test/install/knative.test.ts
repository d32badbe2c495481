import { describe, expect, it } from 'vitest'
import { builtins } from '#functions'
import { at } from '#functions/at'
import { knativeManifests } from '#install'
import type { Reconciler } from '#sdk'

interface Service {
  metadata: { name: string; namespace: string; labels: Record<string, string> }
  spec: { template: { metadata: { annotations: Record<string, unknown> }; spec: PodSpec } }
}
interface PodSpec {
  timeoutSeconds: number
  automountServiceAccountToken: boolean
  containers: { image: string; args: string[]; ports: object[]; readinessProbe: object; securityContext: object }[]
}
const made = (one: Reconciler = at, options = {}) =>
  knativeManifests(one, { image: 'x/y:1', namespace: 'fns', modules: [], ...options }) as unknown as [
    Service,
    { metadata: { name: string }; spec: { invoke: object } },
  ]

// What Serving's webhook demands (pkg/apis/serving, 1.23), and what a cold start wants.
describe('the Knative Service of a function', () => {
  it('is called by its Reconciler, and by nobody outside of the cluster', () => {
    const [service, reconciler] = made()
    expect(reconciler).toMatchObject({
      metadata: { name: 'at' },
      spec: { invoke: { http: { url: 'http://at.fns.svc.cluster.local' } } },
    })
    expect(service.metadata).toMatchObject({ name: 'at', namespace: 'fns' })
    expect(service.metadata.labels['networking.knative.dev/visibility']).toBe('cluster-local')
  })

  it('has no rights of its own, and one port of a name that Knative takes', () => {
    const { automountServiceAccountToken, containers } = made()[0].spec.template.spec
    expect(automountServiceAccountToken).toBe(false)
    expect(containers.map(({ ports }) => ports)).toEqual([[{ name: 'http1', containerPort: 8080 }]])
  })

  it('leaves the periods of its probes to Knative, which then probes at once', () => {
    const [container] = made()[0].spec.template.spec.containers
    expect(container?.readinessProbe).toEqual({ httpGet: { path: '/health/readiness' } })
  })

  it.each([
    [undefined, 90],
    [5, 60],
    [3600, 600],
  ])('gives a run of %s s a revision time-out of %d s', (timeoutSeconds, expected) => {
    const [service] = made({ ...at, ...(timeoutSeconds !== undefined && { timeoutSeconds }) })
    expect(service.spec.template.spec.timeoutSeconds).toBe(expected)
  })

  it('has only strings in its annotations, as the API server wants', async () => {
    for (const one of await builtins())
      for (const value of Object.values(made(one)[0].spec.template.metadata.annotations))
        expect(value).toBeTypeOf('string')
  })

  it('serves the module that the image has', () => {
    expect(made(at, { modules: ['/app/mine.ts'] })[0].spec.template.spec.containers[0]?.args).toEqual([
      'serve',
      '--function',
      '/app/mine.ts',
      'at',
    ])
  })

  it('has the configuration of the function in a volume, and an account without rights where that has a token', () => {
    const config = [
      { name: 'token', secret: { name: 'provider', key: 'key' } },
      { name: 'zone', configMap: { name: 'zones', key: 'zone' } },
    ]
    const external = { config, read: () => null, perform: () => undefined }
    const spec = made({ ...at, external })[0].spec.template.spec
    const optional = { optional: true }
    const sources = [
      { secret: { name: 'provider', items: [{ key: 'key', path: 'token' }], ...optional } },
      { configMap: { name: 'zones', items: [{ key: 'zone', path: 'zone' }], ...optional } },
    ]
    expect(spec).toMatchObject({ volumes: [{ name: 'config', projected: { sources } }] })
    const mount = { name: 'config', mountPath: '/var/run/fairlead/config', readOnly: true }
    expect(spec.containers).toMatchObject([{ volumeMounts: [mount] }])
    expect(spec).not.toHaveProperty('serviceAccountName')

    const withToken = { ...external, config: [...config, { name: 'cloud', audience: 'cloud.test' }] }
    const objects = knativeManifests({ ...at, external: withToken }, { image: 'x', namespace: 'fns', modules: [] })
    expect(objects).toMatchObject([
      { kind: 'ServiceAccount', metadata: { name: 'at-function', namespace: 'fns' } },
      { kind: 'Service', spec: { template: { spec: { serviceAccountName: 'at-function' } } } },
      { kind: 'Reconciler' },
    ])
    const text = JSON.stringify(objects)
    expect(text).toContain('{"serviceAccountToken":{"audience":"cloud.test","expirationSeconds":3600,"path":"cloud"}}')
  })
})
