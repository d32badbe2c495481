import { reconciler, Secret, Service } from 'fairlead'
import { decide } from './decide.ts'
import { perform, read } from './external.ts'
import { Claim, DisruptionBudget, MemberPod, Restore } from './parts.ts'
import { EtcdCluster } from './resource.ts'
import { OperatorSecret, PeerSecret, ServerSecret } from './tls.ts'

/** Runs an etcd cluster, whose members are pods. */
export const etcd = reconciler({
  name: 'etcd',
  for: EtcdCluster,
  owns: [MemberPod, Claim, Service, DisruptionBudget, Secret],
  related: [PeerSecret, ServerSecret, OperatorSecret, Restore],
  // Members that a user has changed, and alarms, cause no event.
  resyncSeconds: 300,
  external: { read, perform, timeoutSeconds: 15 },
  reconcile: decide,
})
