import type { KubeObject } from '#contracts'
import type { Reconciler } from '#sdk'
import { serviceOf } from './rights.ts'

export interface Workload {
  image: string
  module: string | undefined
}

const labelsOf = (one: Reconciler): Record<string, string> => ({
  'app.kubernetes.io/name': serviceOf(one),
  'app.kubernetes.io/part-of': 'fairlead',
})

/** Nodes for the images that `fairlead image` makes. */
const PLATFORMS = {
  matchExpressions: [
    { key: 'kubernetes.io/os', operator: 'In', values: ['linux'] },
    { key: 'kubernetes.io/arch', operator: 'In', values: ['amd64', 'arm64'] },
  ],
}

/** A Deployment as a ClusterServiceVersion has it: the function over HTTP. It decides, and the dispatcher writes. */
export function deploymentOf(one: Reconciler, { image, module }: Workload): object {
  const labels = labelsOf(one)
  return {
    name: serviceOf(one),
    label: labels,
    spec: {
      replicas: 1,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          automountServiceAccountToken: false,
          enableServiceLinks: false,
          affinity: {
            nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [PLATFORMS] } },
          },
          securityContext: { runAsNonRoot: true, runAsUser: 65_532, seccompProfile: { type: 'RuntimeDefault' } },
          containers: [
            {
              name: 'function',
              image,
              args: ['serve', ...(module === undefined ? [] : ['--function', module]), one.name],
              ports: [{ name: 'http', containerPort: 8080 }],
              readinessProbe: { httpGet: { path: '/health/readiness', port: 'http' } },
              livenessProbe: { httpGet: { path: '/health/liveness', port: 'http' } },
              resources: { requests: { cpu: '50m', memory: '96Mi' }, limits: { memory: '256Mi' } },
              securityContext: {
                allowPrivilegeEscalation: false,
                capabilities: { drop: ['ALL'] },
                readOnlyRootFilesystem: true,
              },
            },
          ],
        },
      },
    },
  }
}

export const serviceFor = (one: Reconciler): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name: serviceOf(one), labels: labelsOf(one) },
  spec: { selector: labelsOf(one), ports: [{ name: 'http', port: 80, targetPort: 'http' }] },
})
