import { Deployment, deploymentName, type ObservedBy, shortName } from '#sdk'
import type { MemcachedObject } from './resource.ts'

/** The label that all memcached servers have, for selectors. */
export const NAME_LABEL = { 'app.kubernetes.io/name': 'memcached' } as const
export const INSTANCE = 'app.kubernetes.io/instance'

export const labelsOf = ({ metadata }: MemcachedObject): Record<string, string> => ({
  ...NAME_LABEL,
  [INSTANCE]: shortName(metadata.name, 63),
})

/** Returns the Deployment. Its pods fit a namespace that enforces the restricted Pod Security Standard. */
export function deploymentFor(object: MemcachedObject): ObservedBy<typeof Deployment> {
  const { size, image, containerPort, memoryMegabytes } = object.spec
  const labels = labelsOf(object)
  const probe = { tcpSocket: { port: 'memcached' } }
  return Deployment.of({
    metadata: { name: deploymentName(object.metadata.name), labels },
    spec: {
      replicas: size,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
          containers: [
            {
              name: 'memcached',
              image,
              command: ['memcached', '-m', `${memoryMegabytes}`, '-o', 'modern', '-v', '-p', `${containerPort}`],
              ports: [{ containerPort, name: 'memcached' }],
              readinessProbe: { ...probe, periodSeconds: 5 },
              livenessProbe: { ...probe, initialDelaySeconds: 10 },
              resources: { requests: { cpu: '50m', memory: `${memoryMegabytes + 32}Mi` } },
              securityContext: {
                runAsUser: 1001,
                allowPrivilegeEscalation: false,
                readOnlyRootFilesystem: true,
                capabilities: { drop: ['ALL'] },
              },
            },
          ],
        },
      },
    },
  })
}
