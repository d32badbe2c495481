import type { KubeObject } from '#contracts'
import { manifest, type Reconciler } from '#sdk'
import { type ConfigVolume, configVolume } from './config-volume.ts'
import { labelled } from './install.ts'
import { LABELS } from './rbac.ts'

export interface KnativeOptions {
  /** An image with the function's module and the `fairlead` command as its entrypoint. */
  image: string
  namespace: string
  /** The paths of the modules inside the image that export the function; empty: a built-in function. */
  modules: readonly string[]
  /** The shard that serves the Reconciler. Left out: the installation without a shard. */
  shard?: string | undefined
}

const MAX_REVISION_TIMEOUT_S = 600
/** queue-proxy drains for 30 s, which has to fit within the time-out of the revision. */
const LEAST_TIMEOUT_S = 60
/** The number of concurrent runs that make good use of a Node.js process, which decides one object at a time. */
const RUNS_PER_POD = 50

/**
 * Returns a Knative Service that runs the function, private to the cluster, and the Reconciler that calls it. Before them
 * the account of its pods, if the function has a token of that.
 */
export function knativeManifests(reconciler: Reconciler, options: KnativeOptions): KubeObject[] {
  const url = `http://${reconciler.name}.${options.namespace}.svc.cluster.local`
  const calling = labelled(manifest(reconciler, { invoke: { http: { url } } }), options.shard)
  const account = `${reconciler.name}-function`
  const volume = configVolume(reconciler, account)
  const accounts = volume.hasToken ? [accountWithoutRights(account, options.namespace)] : []
  return [...accounts, knativeService(reconciler, options, volume), calling]
}

const accountWithoutRights = (name: string, namespace: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ServiceAccount',
  metadata: { name, namespace, labels: LABELS },
  automountServiceAccountToken: false,
})

function knativeService(
  { name, timeoutSeconds = 60 }: Reconciler,
  { image, namespace, modules }: KnativeOptions,
  volume: ConfigVolume,
): KubeObject {
  return {
    apiVersion: 'serving.knative.dev/v1',
    kind: 'Service',
    metadata: {
      name,
      namespace,
      labels: { ...LABELS, 'networking.knative.dev/visibility': 'cluster-local' },
    },
    spec: {
      template: {
        metadata: {
          annotations: {
            'autoscaling.knative.dev/min-scale': '0',
            'autoscaling.knative.dev/max-scale': '10',
            // Keeps the pod for a run that requests another one soon.
            'autoscaling.knative.dev/scale-to-zero-pod-retention-period': '1m',
          },
        },
        spec: {
          // The function needs no permissions in the cluster: it decides, and the dispatcher writes.
          automountServiceAccountToken: false,
          enableServiceLinks: false,
          ...volume.pod,
          containerConcurrency: RUNS_PER_POD,
          // Includes a cold start, the run, and the margin of the dispatcher.
          timeoutSeconds: Math.min(MAX_REVISION_TIMEOUT_S, Math.max(LEAST_TIMEOUT_S, timeoutSeconds + 30)),
          containers: [
            {
              image,
              args: ['serve', ...modules.flatMap((module) => ['--function', module]), name],
              ports: [{ name: 'http1', containerPort: 8080 }],
              // Without periodSeconds, Knative probes several times a second while a pod starts.
              readinessProbe: { httpGet: { path: '/health/readiness' } },
              livenessProbe: { httpGet: { path: '/health/liveness' } },
              resources: { requests: { cpu: '50m', memory: '96Mi' }, limits: { memory: '256Mi' } },
              securityContext: {
                allowPrivilegeEscalation: false,
                capabilities: { drop: ['ALL'] },
                readOnlyRootFilesystem: true,
                runAsNonRoot: true,
                runAsUser: 65_532,
                seccompProfile: { type: 'RuntimeDefault' },
              },
              ...volume.container,
            },
          ],
        },
      },
    },
  }
}
