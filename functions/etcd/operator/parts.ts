import type { V1PodDisruptionBudget } from '@kubernetes/client-node'
import { type KubeObject, kind, type ObservedBy, PersistentVolumeClaim, Pod, type Secret, Service } from 'fairlead'
import { EtcdRestore } from '../restore/index.ts'
import { CLIENT_PORT, clientServiceOf, labelsOf, PEER_PORT } from './names.ts'
import type { ClusterObject } from './resource.ts'

/** The pod of a member. The image of an existing pod is changed in place. */
export const MemberPod = { ...Pod, strategy: 'Apply' } as const
export const Claim = PersistentVolumeClaim
export const DisruptionBudget = kind<V1PodDisruptionBudget>({
  group: 'policy',
  version: 'v1',
  kind: 'PodDisruptionBudget',
  plural: 'poddisruptionbudgets',
})

/** The EtcdRestore that requests other data, which has the name of the cluster. */
export const Restore = { ...EtcdRestore, byName: 'metadata.name' } as const

export type PodObject = ObservedBy<typeof Pod>
export type SecretObject = ObservedBy<typeof Secret>
export type ClaimObject = ObservedBy<typeof PersistentVolumeClaim>

export const quorumOf = (voters: number): number => Math.floor(voters / 2) + 1

export const named = <T extends { metadata: { name: string } }>(objects: readonly T[], name: string): T | undefined =>
  objects.find(({ metadata }) => metadata.name === name)

/** Returns the objects that depend on the members only by their number. */
export function partsOf(object: ClusterObject, voters: number): KubeObject[] {
  const labels = labelsOf(object)
  const port = (name: string, port: number) => ({ name, port, targetPort: port, protocol: 'TCP' })
  const parts: KubeObject[] = [
    Service.of({
      metadata: { name: clientServiceOf(object), labels },
      spec: { selector: labels, ports: [port('client', CLIENT_PORT)] },
    }),
    // Members must find each other before they are ready.
    Service.of({
      metadata: { name: object.metadata.name, labels },
      spec: {
        clusterIP: 'None',
        publishNotReadyAddresses: true,
        selector: labels,
        ports: [port('client', CLIENT_PORT), port('peer', PEER_PORT)],
      },
    }),
  ]
  const members = Math.max(voters, object.spec.size)
  if (members === 1) return parts
  return [
    ...parts,
    DisruptionBudget.of({
      metadata: { name: object.metadata.name, labels },
      spec: { minAvailable: quorumOf(members), selector: { matchLabels: labels } },
    }),
  ]
}
