import { atMostOneOf, named, reserved, resource, together, z } from 'fairlead'
import { agentImage } from '../restore/index.ts'

const days = (least: number, most: number) => z.int32().min(least).max(most)

/** The settings if the function is the authority of the cluster. */
const AutoTls = z
  .object({
    certificateDays: days(1, 825)
      .default(90)
      .describe('For how long certificates are valid. They are renewed when a third of it is left.'),
    authorityDays: days(7, 3650).default(1825).describe('The age at which the authority is replaced.'),
    rotation: z
      .int32()
      .min(0)
      .default(0)
      .describe('A higher number than status.TLS.rotation replaces the authority once.'),
    overlapMinutes: z
      .int32()
      .min(1)
      .max(43_200)
      .default(1440)
      .describe(
        'Clients have to read their Secret again within that time: for so long the new authority is trusted before it issues ' +
          'certificates, and the former one after that.',
      ),
  })
  .describe(
    'Certificates are issued by this function into Secrets NAME-member-tls, NAME-operator-tls and NAME-client-tls.',
  )

const TlsStatus = z.object({
  phase: z
    .enum(['Preparing', 'Stable', 'Trusting', 'Trusted', 'Issuing', 'Issued', 'Retiring'])
    .describe(
      'Trusting: members get to know the new authority. Trusted: clients have time for that. Issuing: members get ' +
        'certificates of it. Issued: clients have time for that. Retiring: members forget the former authority.',
    ),
  since: z.string().describe('When the phase began.'),
  authority: z.int32().describe('Number of the authority that issues certificates.'),
  trusted: z.array(z.int32()).describe('Numbers of the authorities that are trusted.'),
  begunAt: z.string().describe('When the newest authority was begun.'),
  issuedAt: z.string().describe('When the certificates were issued.'),
  rotation: z.int32().describe('The last spec.TLS.auto.rotation that was begun.'),
  certificatesUntil: z.string().optional().describe('Until when the certificates are valid.'),
  authorityUntil: z.string().optional().describe('Until when the authority is valid that issues them.'),
})

/** A field that Kubernetes validates when a pod or a claim is made from it. */
const ofKubernetes = z.looseObject({})
const secretName = z.string().min(1).max(253)

const PodPolicy = z.object({
  labels: z.record(z.string(), z.string()).optional().describe('Not app, and no key that begins with etcd_.'),
  annotations: z.record(z.string(), z.string()).optional().describe('Not etcd.version.'),
  nodeSelector: z.record(z.string(), z.string()).optional(),
  affinity: ofKubernetes.optional(),
  antiAffinity: z.boolean().optional().describe('Deprecated: members on different nodes, where affinity is left out.'),
  tolerations: z.array(ofKubernetes).max(100).optional(),
  resources: ofKubernetes.optional().describe('Resources of the container etcd and of the init container.'),
  etcdEnv: z
    .array(z.looseObject({ name: z.string().min(1) }))
    .max(100)
    .optional(),
  persistentVolumeClaimSpec: ofKubernetes.optional().describe('One claim for each member, removed with it.'),
  busyboxImage: z
    .string()
    .min(1)
    .default('busybox:1.28.0-glibc')
    .describe('Image of the init container of members that use TLS between them.'),
  securityContext: ofKubernetes.optional(),
  DNSTimeoutInSecond: z.int32().min(0).default(0).describe('Time limit of the init container. 0: it waits for ever.'),
  ClusterDomain: z.string().default('').describe('Appended to the names of members, e.g. .cluster.local'),
})

/** The EtcdCluster of coreos/etcd-operator. */
export const EtcdCluster = resource({
  group: 'etcd.database.coreos.com',
  version: 'v1beta2',
  kind: 'EtcdCluster',
  plural: 'etcdclusters',
  shortNames: ['etcd', 'etcdclus'],
  validations: [
    {
      rule:
        '!has(self.spec.auth) || !self.spec.auth.enabled || (has(self.spec.TLS) && (has(self.spec.TLS.auto) || ' +
        '(has(self.spec.TLS.static) && has(self.spec.TLS.static.operatorSecret))))',
      message: 'auth needs TLS to clients: their certificates name the user',
      fieldPath: '.spec.auth',
    },
  ],
  rules: [
    named(/^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$/, {
      message:
        'the name of an EtcdCluster is the name of its Service: 52 characters at most of a-z, 0-9 and -, a letter first',
    }),
    reserved('.spec.pod.labels', ['app', 'etcd_*'], {
      message: 'the labels app and etcd_* are those of the function: remove them from spec.pod.labels',
    }),
    atMostOneOf(['.spec.TLS.auto', '.spec.TLS.static']),
    together(['.spec.TLS.static.operatorSecret', '.spec.TLS.static.member.serverSecret']),
  ],
  spec: z.object({
    size: z.int32().min(1).max(7).describe('How many members there are to be.'),
    repository: z.string().min(1).default('quay.io/coreos/etcd'),
    version: z
      .string()
      .regex(/^v?\d+\.\d+\.\d+$/)
      .default('3.7.3')
      .describe('A released version of etcd, from 3.5.12.'),
    paused: z.boolean().default(false).describe('Nothing is done, and the status goes on.'),
    pod: PodPolicy.prefault({}).describe('Settings of the pods. A change replaces the members one by one.'),
    defragmentation: z
      .object({ fromHour: z.int32().min(0).max(23), hours: z.int32().min(1).max(24) })
      .optional()
      .describe('Hours of the day, UTC, in which files with much free space are rewritten. Left out: at any time.'),
    recovery: z
      .object({
        quorumLostSince: z.string().min(1).max(64).describe('That of the status. A later loss has another one.'),
        agentImage,
        timeoutInSecond: z.int().min(1).max(604_800).default(3600).describe('For the data to be copied.'),
      })
      .optional()
      .describe('Go on from a member that still answers, and lose what it does not have.'),
    TLS: z
      .object({
        auto: AutoTls.optional(),
        static: z
          .object({
            member: z
              .object({ peerSecret: secretName.optional(), serverSecret: secretName.optional() })
              .optional()
              .describe(
                'Secrets with peer.crt, peer.key, peer-ca.crt, and with server.crt, server.key, server-ca.crt.',
              ),
            operatorSecret: secretName
              .optional()
              .describe('Secret with etcd-client.crt, etcd-client.key, etcd-client-ca.crt.'),
          })
          .optional(),
      })
      .optional(),
    auth: z
      .object({ enabled: z.boolean() })
      .optional()
      .describe(
        'Whether clients need a user of etcd, which is the CN of their certificate. Left out: it stays as it is.',
      ),
  }),
  status: z.object({
    phase: z.enum(['Creating', 'Running', 'Failed']),
    reason: z.string().describe('Why the phase is Failed.'),
    controlPaused: z.boolean(),
    size: z.int32().describe('Members of etcd that vote.'),
    selector: z.string(),
    serviceName: z.string(),
    clientPort: z.int32(),
    members: z.object({
      ready: z.array(z.string()).describe('Names of the members that vote and reach a quorum.'),
      unready: z.array(z.string()),
      learners: z.array(z.string()).describe('Those of the unready that do not vote yet.'),
    }),
    leader: z.string().optional(),
    versions: z.record(z.string(), z.string()).describe('Version of each member, from its latest answer.'),
    currentVersion: z.string().describe('That all members have run last.'),
    targetVersion: z.string().describe('To which the members are being brought.'),
    clusterID: z
      .string()
      .optional()
      .describe('ID of the cluster in etcd. From then on the cluster is never formed again.'),
    quorumLostSince: z.string().optional(),
    incarnation: z.int32().describe('How often the cluster was to begin with a snapshot.'),
    restoring: z.string().optional().describe('UID of the EtcdRestore by which the members are being replaced.'),
    TLS: TlsStatus.optional(),
    authEnabled: z.boolean().optional().describe('Whether etcd demands a user. Known where spec.auth is given.'),
    restoredFrom: z.string().optional().describe('UID of the EtcdRestore whose snapshot the members have.'),
    recovering: z.string().optional().describe('The lost quorum from which the cluster is being recovered.'),
    recovered: z.string().optional().describe('The lost quorum from which the cluster was recovered last.'),
    recoveringSince: z
      .string()
      .optional()
      .describe('When the recovery was recorded. There as long as members of before have pods.'),
    returned: z
      .array(z.string())
      .optional()
      .describe('Members of before that were Ready after that. Their volumes stay until a user deletes them.'),
  }),
  scale: { spec: '.spec.size', status: '.status.size', selector: '.status.selector' },
  columns: [
    { name: 'Size', path: '.spec.size', type: 'integer' },
    { name: 'Members', path: '.status.size', type: 'integer' },
    { name: 'Version', path: '.status.currentVersion' },
    { name: 'Available', path: '.status.conditions[?(@.type=="Available")].status' },
    { name: 'Phase', path: '.status.phase', priority: 1 },
    { name: 'Leader', path: '.status.leader', priority: 1 },
  ],
})

export type ClusterObject = ReturnType<typeof EtcdCluster.parse>
