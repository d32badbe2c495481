import { Deployment, moved, reconciler, resource, rolloutOf, scaled, wrapped, z } from 'fairlead'

const host = z.string().min(1).max(253)

/** Asks hosts for a page again and again. v1beta1 had one host, and counted minutes. */
export const Probe = resource({
  group: 'monitoring.example.com',
  version: 'v1',
  kind: 'Probe',
  plural: 'probes',
  spec: z.object({
    hosts: z.array(host).min(1).max(50),
    every: z.int32().min(60).max(86_400).describe('In seconds.'),
    http: z.object({ path: z.string().max(1024).optional() }).optional(),
  }),
  status: z.object({ ready: z.int32() }),
  validate: ({ spec: { hosts, every, http }, old }) => [
    ...hosts.flatMap((one, index) => [
      ...(isHost(one) ? [] : [{ path: `.spec.hosts[${index}]`, message: `${one} is no host` }]),
      ...(hosts.indexOf(one) < index ? [{ path: `.spec.hosts[${index}]`, message: `${one} is there twice` }] : []),
    ]),
    ...(http?.path?.startsWith('/') === false ? [{ path: '.spec.http.path', message: 'it begins with /' }] : []),
    ...(old !== undefined && every > old.every * 10
      ? [{ path: '.spec.every', message: 'more than ten times as rare as before', warning: true }]
      : []),
  ],
  served: [
    {
      version: 'v1beta1',
      deprecated: 'use monitoring.example.com/v1',
      spec: z.object({ host, minutes: z.int32().min(1).max(1440), path: z.string().max(1024).optional() }),
      convert: [
        wrapped('.spec.host', '.spec.hosts'),
        scaled('.spec.minutes', '.spec.every', 60),
        moved('.spec.path', '.spec.http.path'),
      ],
    },
  ],
})

/** What a rule in CEL cannot say: a host as URLs know it, also an address of IPv6. */
function isHost(text: string): boolean {
  const url = `http://${text}`
  return URL.canParse(url) && new URL(url).host === text
}

export const probe = reconciler({
  name: 'probe',
  for: Probe,
  owns: [Deployment],
  reconcile({ object: { metadata, spec }, owned }) {
    const labels = { probe: metadata.name }
    const urls = spec.hosts.map((one) => `http://${one}${spec.http?.path ?? '/'}`)
    const container = { name: 'probe', image: 'example.com/probe:1', args: [`--every=${spec.every}s`, ...urls] }
    const { ready, isComplete } = rolloutOf(owned(Deployment)[0])
    return {
      apply: [
        Deployment.of({
          metadata: { name: metadata.name },
          spec: {
            selector: { matchLabels: labels },
            template: { metadata: { labels }, spec: { containers: [container] } },
          },
        }),
      ],
      status: { ready },
      conditions: [
        { type: 'Ready', status: isComplete ? 'True' : 'False', reason: isComplete ? 'Probing' : 'Starting' },
      ],
    }
  },
})
