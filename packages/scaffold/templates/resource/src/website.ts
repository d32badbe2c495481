import { ConfigMap, Deployment, reconciler, resource, rolloutOf, Service, serviceName, z } from 'fairlead'

/** The custom resource: its types, its definition and the checks on reading come from this schema. */
export const Website = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Website',
  plural: 'websites',
  spec: z.object({
    html: z.string().min(1).describe('The page.'),
    replicas: z.int32().min(1).max(20).default(1),
  }),
  status: z.object({ ready: z.int32() }),
  columns: [{ name: 'Ready', path: '.status.ready', type: 'integer' }],
})

/** What a Website should own. It is called after each change of the Website or of what it owns. */
export const website = reconciler({
  name: 'website',
  for: Website,
  owns: [ConfigMap, Deployment, Service],
  reconcile({ object: { metadata, spec }, owned }) {
    const name = serviceName(metadata.name)
    const labels = { app: name }
    const volumes = [{ name: 'page', configMap: { name } }]
    const server = {
      name: 'httpd',
      image: 'busybox',
      command: ['httpd', '-f', '-p', '8080', '-h', '/www'],
      volumeMounts: [{ name: 'page', mountPath: '/www' }],
    }
    const template = { metadata: { labels }, spec: { containers: [server], volumes } }
    const { ready, isComplete } = rolloutOf(owned(Deployment)[0])
    return {
      apply: [
        ConfigMap.of({ metadata: { name }, data: { 'index.html': spec.html } }),
        Deployment.of({
          metadata: { name },
          spec: { replicas: spec.replicas, selector: { matchLabels: labels }, template },
        }),
        Service.of({ metadata: { name }, spec: { selector: labels, ports: [{ port: 80, targetPort: 8080 }] } }),
      ],
      status: { ready },
      conditions: [
        { type: 'Ready', status: isComplete ? 'True' : 'False', reason: isComplete ? 'Serving' : 'Starting' },
      ],
    }
  },
})
