import {
  type ConditionUpdate,
  fieldsOf,
  immutable,
  Node,
  type ObservedBy,
  Pod,
  reconciler,
  resource,
  z,
} from 'fairlead'

/** A Node is cordoned and drained as long as its NodeMaintenance exists. */
export const NodeMaintenance = resource({
  group: 'nodemaintenance.medik8s.io',
  version: 'v1beta1',
  kind: 'NodeMaintenance',
  plural: 'nodemaintenances',
  scope: 'Cluster',
  shortNames: ['nm'],
  spec: z.object({
    nodeName: z.string().min(1).describe('The Node that goes into maintenance.'),
    reason: z.string().optional().describe('Why it is in maintenance.'),
  }),
  status: z.object({
    phase: z.enum(['Running', 'Succeeded', 'Failed']),
    totalpods: z.int32().optional().describe('Pods on the Node before it was drained.'),
    evictionPods: z.int32().optional().describe('Those of them that had to go.'),
    pendingPods: z.array(z.string()).optional().describe('Those that are still there.'),
    drainProgress: z.int32().optional().describe('Percent.'),
    lastError: z.string().optional(),
  }),
  rules: [immutable('.spec.nodeName', { message: 'create another NodeMaintenance for another Node' })],
  columns: [
    { name: 'Node', path: '.spec.nodeName' },
    { name: 'Phase', path: '.status.phase' },
    { name: 'Progress', path: '.status.drainProgress', type: 'integer' },
  ],
})

const Target = { ...Node, byName: 'spec.nodeName' } as const
/** The Pods on that Node. */
const OnNode = { ...Pod, naming: 'spec.nodeName', byName: 'spec.nodeName' } as const

/** The same label as that of the other operator: remediation leaves the Node alone. */
const EXCLUDED = { 'remediation.medik8s.io/exclude-from-remediation': 'true' }

/** A drain leaves pods that would come back on the same Node: of a DaemonSet, or of a file of the kubelet. */
function hasToGo({ metadata }: ObservedBy<typeof Pod>): boolean {
  const isOfDaemonSet = metadata.ownerReferences?.some(({ kind, controller }) => kind === 'DaemonSet' && controller)
  return isOfDaemonSet !== true && metadata.annotations?.['kubernetes.io/config.mirror'] === undefined
}

const readyAs = (status: 'True' | 'False', reason: string, message: string): ConditionUpdate[] => [
  { type: 'Ready', status, reason, message },
]

export const nodeMaintenance = reconciler({
  name: 'node-maintenance',
  for: NodeMaintenance,
  related: [Target, OnNode],
  patches: [Node],
  acts: [{ ...Pod, act: 'Evict', within: 'Cluster' }],
  reconcile({ object: { spec, status }, related, refused }) {
    const [node] = related(Target)
    if (node === undefined) {
      const lastError = `no Node ${spec.nodeName}`
      return {
        patch: [],
        status: { phase: 'Failed', lastError },
        conditions: readyAs('False', 'NodeNotFound', lastError),
      }
    }
    const cordon = fieldsOf(Node, {
      metadata: { name: spec.nodeName, labels: EXCLUDED },
      spec: { unschedulable: true },
    })
    const here = related(OnNode)
    const pending = here.filter(hasToGo)
    const isFirst = status.evictionPods === undefined
    const evictionPods = status.evictionPods ?? pending.length
    const [lastError] = refused(OnNode)
      .map(({ message }) => message)
      .sort()
    const gone = Math.max(0, evictionPods - pending.length)
    return {
      patch: [cordon],
      // What is to go is counted before the first of them goes.
      act: isFirst ? [] : pending.filter(isThere).map((pod) => ({ act: 'Evict', on: pod })),
      status: {
        phase: pending.length === 0 ? 'Succeeded' : 'Running',
        totalpods: status.totalpods ?? here.length,
        evictionPods,
        pendingPods: pending.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`).sort(),
        drainProgress: pending.length === 0 ? 100 : Math.floor((100 * gone) / Math.max(evictionPods, 1)),
        ...(lastError !== undefined && { lastError }),
      },
      conditions:
        pending.length === 0
          ? readyAs('True', 'Drained', '')
          : readyAs(
              'False',
              'Draining',
              `${pending.length} pods are to go${lastError === undefined ? '' : `: ${lastError}`}`,
            ),
    }
  },
})

const isThere = ({ metadata }: ObservedBy<typeof Pod>): boolean => metadata.deletionTimestamp === undefined
