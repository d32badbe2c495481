import { type ConditionUpdate, Deployment, type ObservedBy, Pod, type Rollout, reconciler, rolloutOf } from '#sdk'
import { deploymentFor, INSTANCE, labelsOf, NAME_LABEL } from './deployment.ts'
import { Memcached, type MemcachedObject } from './resource.ts'

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
