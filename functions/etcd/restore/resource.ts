import { immutable, type ReconcileOutcome, resource, z } from 'fairlead'
import { agentImage, agentServiceAccount, storageType, storeFields, storeRules } from '../backup/index.ts'

const verified = z.object({
  path: z.string().describe('Address of the snapshot.'),
  size: z.int().describe('In bytes.'),
  sha256: z.string().describe('Digest of all bytes. Other bytes are not restored.'),
  etcdRevision: z.int(),
  etcdVersion: z.string().optional().describe('Version of the etcd that took it. Left out: unknown.'),
})

const statusSchema = z.object({
  succeeded: z
    .boolean()
    .describe('Whether the cluster runs on the restored data, and its Service leads to a ready member.'),
  reason: z.string().optional().describe('Why it does not.'),
  verified: verified
    .optional()
    .describe('The snapshot was read to its end and is whole. From then on the cluster is replaced.'),
  clusterUID: z
    .string()
    .optional()
    .describe('UID of the EtcdCluster for which the snapshot was verified. Another one of its name is not replaced.'),
  failures: z.int32().optional().describe('Checks that have failed since the last edit.'),
  lastFailureDate: z.string().optional(),
  failedGeneration: z.int().optional().describe('The generation to which the failures belong.'),
  lastPod: z.string().optional().describe('The pod whose result this status has.'),
})

/** The EtcdRestore of coreos/etcd-operator. */
export const EtcdRestore = resource({
  group: 'etcd.database.coreos.com',
  version: 'v1beta2',
  kind: 'EtcdRestore',
  plural: 'etcdrestores',
  shortNames: ['etcdrestore'],
  validations: [
    {
      rule: 'self.metadata.name == self.spec.etcdCluster.name',
      messageExpression: "'an EtcdRestore has the name of its cluster: name it ' + self.spec.etcdCluster.name",
      fieldPath: '.metadata.name',
    },
  ],
  rules: [
    immutable('.spec', {
      when: '.status.verified',
      message:
        'the snapshot is verified, and the cluster is being replaced: for another restore create another EtcdRestore',
    }),
  ],
  spec: z
    .object({
      etcdCluster: z
        .object({ name: z.string().min(1).max(52) })
        .describe('The cluster that is replaced, in the same namespace.'),
      backupStorageType: storageType.describe('S3, and what speaks it; ABS; GCS.'),
      ...storeFields,
      timeoutInSecond: z.int().min(1).max(604_800).default(3600).describe('For the snapshot to be read once.'),
      agentImage,
      agentServiceAccount,
    })
    .meta({ 'x-kubernetes-validations': storeRules('backupStorageType') }),
  status: statusSchema,
  columns: [
    { name: 'Cluster', path: '.spec.etcdCluster.name' },
    { name: 'Succeeded', path: '.status.succeeded', type: 'boolean' },
    { name: 'Revision', path: '.status.verified.etcdRevision', type: 'integer' },
    { name: 'Ready', path: '.status.conditions[?(@.type=="Ready")].reason' },
  ],
})

export type RestoreObject = ReturnType<typeof EtcdRestore.parse>
export type RestoreOutcome = ReconcileOutcome<z.input<typeof statusSchema>>
