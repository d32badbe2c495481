import { Deployment, fieldsOf, kind, Namespace, Node, reconciler, resource, Service, StatefulSet, z } from 'fairlead'

/** A kind of others, whose status has conditions. */
export const Gateway = kind({ group: 'example.net', version: 'v1', kind: 'Gateway', plural: 'gateways' })

export const Drain = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Drain',
  plural: 'drains',
  spec: z.object({
    /** The Nodes to cordon. */
    nodes: z.array(z.string()).default([]),
    /** The label `team` of the Namespaces to mark. */
    team: z.string().optional(),
    /** Of the Deployment `web`. */
    replicas: z.int32().optional(),
    /** The replicas of the StatefulSet `db`, which are taken from their owner. */
    size: z.int32().optional(),
    /** Of the Service `web`. */
    note: z.string().optional(),
    /** Of the Gateway `edge`. */
    reachable: z.boolean().optional(),
  }),
  status: z.object({ phase: z.string().optional() }),
})

const Team = { ...Namespace, within: 'Cluster', selector: 'team' } as const

/** Sets fields of six kinds of others. */
export const drain = reconciler({
  name: 'drain',
  for: Drain,
  related: [Team],
  patches: [
    Node,
    Namespace,
    Deployment,
    Service,
    { ...StatefulSet, takes: ['spec.replicas'] },
    { ...Gateway, status: true },
  ],
  backoff: { initialSeconds: 0.1, maxSeconds: 1 },
  reconcile({ object: { spec, metadata }, related }) {
    const { nodes, team, replicas, size, note, reachable } = spec
    const { namespace = '' } = metadata
    const web = { name: 'web', namespace }
    const status = reachable === true ? 'True' : 'False'
    const condition = { type: 'Reachable', status, reason: 'Looked', message: '' }
    const spaces = related(Team).filter((one) => one.metadata.labels?.['team'] === team)
    return {
      patch: [
        ...nodes.map((name) => fieldsOf(Node, { metadata: { name }, spec: { unschedulable: true } })),
        ...spaces.map(({ metadata: { name } }) =>
          fieldsOf(Namespace, { metadata: { name, labels: { draining: 'yes' } } }),
        ),
        ...(replicas === undefined ? [] : [fieldsOf(Deployment, { metadata: web, spec: { replicas } })]),
        ...(size === undefined
          ? []
          : [fieldsOf(StatefulSet, { metadata: { name: 'db', namespace }, spec: { replicas: size } })]),
        ...(note === undefined
          ? []
          : [fieldsOf(Service, { metadata: { ...web, annotations: { 'example.com/note': note } } })]),
        ...(reachable === undefined
          ? []
          : [fieldsOf(Gateway, { metadata: { name: 'edge', namespace }, status: { conditions: [condition] } })]),
      ],
      status: { phase: 'Done' },
    }
  },
})
