import {
  type ConditionUpdate,
  Deployment,
  deploymentName,
  type ObservedBy,
  Pod,
  type Rollout,
  reconciler,
  rolloutOf,
  shortName,
} from 'fairlead'
import { Memcached, type MemcachedObject } from './resource.ts'

/** The label that all memcached servers have, for selectors. */
const NAME_LABEL = { 'app.kubernetes.io/name': 'memcached' } as const
const INSTANCE = 'app.kubernetes.io/instance'

const labelsOf = ({ metadata }: MemcachedObject): Record<string, string> => ({
  ...NAME_LABEL,
  [INSTANCE]: shortName(metadata.name, 63),
})

/** Returns the Deployment. Its pods fit a namespace that enforces the restricted Pod Security Standard. */
function deploymentFor(object: MemcachedObject): ObservedBy<typeof Deployment> {
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

const selectorText = (labels: Record<string, string>): string =>
  Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(',')

const Server = { ...Pod, selector: selectorText(NAME_LABEL) }

/** Runs a Deployment of memcached servers, and reports its state on the Memcached. */
export const memcached = reconciler({
  name: 'memcached',
  for: Memcached,
  owns: [Deployment],
  related: [Server],
  reconcile({ object, owned, related }) {
    const labels = labelsOf(object)
    const [deployment] = owned(Deployment)
    const rollout = rolloutOf(deployment)
    const nodes = related(Server).filter((pod) => lives(pod) && pod.metadata.labels?.[INSTANCE] === labels[INSTANCE])
    return {
      apply: [deploymentFor(object)],
      status: {
        nodes: nodes.map(({ metadata }) => metadata.name).sort(),
        replicas: deployment?.status?.replicas ?? 0,
        readyReplicas: rollout.ready,
        selector: selectorText(labels),
        image: rollout.isComplete ? object.spec.image : object.status.image,
      },
      conditions: conditionsOf(object, rollout),
    }
  },
  finalize({ object: { metadata } }) {
    const message = `Memcached ${metadata.name} is being deleted; its Deployment and pods go with it`
    return {
      conditions: [{ type: 'Degraded', status: 'True', reason: 'Finalizing', message }],
      events: [{ type: 'Warning', reason: 'Deleting', message }],
    }
  },
})

const lives = ({ metadata, status }: ObservedBy<typeof Pod>): boolean =>
  metadata.deletionTimestamp === undefined && status?.phase !== 'Failed' && status?.phase !== 'Succeeded'

function conditionsOf({ spec }: MemcachedObject, { ready, isComplete, isStuck }: Rollout): ConditionUpdate[] {
  const message = `${ready} of ${spec.size} servers are ready`
  const available = ready >= spec.size
  return [
    {
      type: 'Available',
      status: available ? 'True' : 'False',
      reason: available ? 'ServersReady' : 'ServersNotReady',
      message,
    },
    {
      type: 'Progressing',
      status: isComplete || isStuck ? 'False' : 'True',
      reason: isComplete ? 'RolledOut' : isStuck ? 'ProgressDeadlineExceeded' : 'RollingOut',
      message,
    },
    { type: 'Degraded', status: isStuck ? 'True' : 'False', reason: isStuck ? 'Stuck' : 'AsExpected', message },
  ]
}
