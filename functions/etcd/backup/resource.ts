import { type ReconcileOutcome, resource, z } from 'fairlead'
import { agentImage, agentServiceAccount, storageType, storeFields, storeRules } from './store-spec.ts'

const statusSchema = z.object({
  succeeded: z.boolean().describe('Whether the latest run has stored a backup.'),
  Reason: z.string().optional().describe('Why it has not.'),
  etcdVersion: z.string().optional().describe('Version of the member of the latest backup.'),
  etcdRevision: z.int().optional().describe('Which the latest backup has at least.'),
  lastSuccessDate: z.string().optional().describe('When the latest backup was taken, in UTC.'),
  path: z.string().optional().describe('Address of the latest backup.'),
  size: z.int().optional().describe('Size of the latest backup, in bytes.'),
  sha256: z.string().optional().describe('Digest of the latest backup.'),
  failures: z.int32().optional().describe('Runs that have failed since the last success or edit.'),
  lastFailureDate: z.string().optional(),
  failedGeneration: z.int().optional().describe('The generation to which the failures belong.'),
  lastPod: z.string().optional().describe('The pod whose result this status has.'),
})

const seconds = (most: number) => z.int().min(0).max(most)

/** The EtcdBackup of coreos/etcd-operator. */
export const EtcdBackup = resource({
  group: 'etcd.database.coreos.com',
  version: 'v1beta2',
  kind: 'EtcdBackup',
  plural: 'etcdbackups',
  shortNames: ['etcdbackup'],
  spec: z
    .object({
      etcdEndpoints: z
        .array(
          z
            .string()
            .regex(/^https?:\/\/[^/]/)
            .max(512),
        )
        .min(1)
        .max(64)
        .describe(
          'URLs of members, such as http://example-client:2379. The one with the highest revision is backed up.',
        ),
      storageType: storageType.describe('S3, and what speaks it; ABS; GCS.'),
      ...storeFields,
      backupPolicy: z
        .object({
          timeoutInSecond: seconds(604_800).default(60).describe('Time limit of one run. 0: 60.'),
          backupIntervalInSecond: seconds(31_536_000)
            .default(0)
            .describe('From one backup to the next. 0: one backup only.'),
          maxBackups: seconds(10_000).default(0).describe('How many periodic backups are kept. 0: all.'),
        })
        .prefault({}),
      clientTLSSecret: z
        .string()
        .min(1)
        .max(253)
        .optional()
        .describe('Secret with etcd-client.crt, etcd-client.key and etcd-client-ca.crt.'),
      agentImage,
      agentServiceAccount,
    })
    .meta({ 'x-kubernetes-validations': storeRules('storageType') }),
  status: statusSchema,
  columns: [
    { name: 'Succeeded', path: '.status.succeeded', type: 'boolean' },
    { name: 'Revision', path: '.status.etcdRevision', type: 'integer' },
    { name: 'Size', path: '.status.size', type: 'integer' },
    { name: 'Last', path: '.status.lastSuccessDate', type: 'date' },
    { name: 'Path', path: '.status.path', priority: 1 },
    { name: 'Reason', path: '.status.Reason', priority: 1 },
  ],
})

export type BackupObject = ReturnType<typeof EtcdBackup.parse>
export type BackupOutcome = ReconcileOutcome<z.input<typeof statusSchema>>
