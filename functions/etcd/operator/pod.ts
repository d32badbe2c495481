import { createHash } from 'node:crypto'
import { CLIENT_PORT, clientScheme, hostOf, labelsOf, METRICS_PORT, PEER_PORT, peerUrlOf, tokenOf } from './names.ts'
import { Claim, type ClaimObject, MemberPod, type PodObject } from './parts.ts'
import type { ClusterObject } from './resource.ts'
import { tlsOfMember } from './tls.ts'

type PodSpec = NonNullable<PodObject['spec']>
type Container = PodSpec['containers'][number]

const VERSION_ANNOTATION = 'etcd.version'
/** The annotation with the digest of the policy that a pod was made for. */
const POLICY_ANNOTATION = 'etcd.database.coreos.com/policy'
/** The annotation with the container that a pod had when its image was changed. */
const REPLACED_ANNOTATION = 'etcd.database.coreos.com/replaced-container'
/** The mount of a member's volume. etcd needs a folder below it, because the root of a volume may not be empty. */
export const DATA = '/var/etcd'
export const DATA_DIR = `${DATA}/data`
export const DATA_VOLUME = 'etcd-data'

/** The settings of a member at its first start. */
export interface Birth {
  name: string
  /** The names of all members, including its own. */
  members: readonly string[]
  /** `new` forms a cluster, and is only for its first member. */
  state: 'new' | 'existing'
  version: string
}

export function podFor(object: ClusterObject, birth: Birth, policy: string): PodObject {
  const { metadata, spec } = object
  const { pod } = spec
  const { name, version } = birth
  const labels = { ...pod.labels, ...labelsOf(object), etcd_node: name }
  const annotations = { ...pod.annotations, [VERSION_ANNOTATION]: version, [POLICY_ANNOTATION]: policy }
  return MemberPod.of({
    metadata: { name, labels, annotations },
    spec: {
      hostname: name,
      subdomain: metadata.name,
      restartPolicy: 'Always',
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: pod.securityContext ?? UNPRIVILEGED,
      ...(peerUrlOf(object, name).startsWith('https:') && { initContainers: [findsItself(object, name)] }),
      containers: [etcd(object, birth)],
      volumes: [
        {
          name: DATA_VOLUME,
          ...(hasClaims(object) ? { persistentVolumeClaim: { claimName: name } } : { emptyDir: {} }),
        },
        ...tlsOfMember(object).volumes,
      ],
      ...scheduling(object),
    },
  })
}

const UNPRIVILEGED: NonNullable<PodSpec['securityContext']> = {
  runAsNonRoot: true,
  runAsUser: 1000,
  fsGroup: 1000,
  seccompProfile: { type: 'RuntimeDefault' },
}
const NO_MORE_RIGHTS = { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } }

function scheduling({ metadata, spec: { pod } }: ClusterObject): Partial<PodSpec> {
  const apart = {
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: [
        { labelSelector: { matchLabels: { etcd_cluster: metadata.name } }, topologyKey: 'kubernetes.io/hostname' },
      ],
    },
  }
  const affinity = (pod.affinity as PodSpec['affinity']) ?? (pod.antiAffinity === true ? apart : undefined)
  return {
    ...(affinity && { affinity }),
    ...(pod.nodeSelector && { nodeSelector: pod.nodeSelector }),
    ...(pod.tolerations && { tolerations: pod.tolerations }),
  }
}

/**
 * The path of the start-up probe. A learner passes it as well, as soon as it can serve a read that a quorum has
 * confirmed.
 */
const CAUGHT_UP = '/readyz?exclude=non_learner'
const UNLIMITED = 2 ** 31 - 1

function etcd(object: ClusterObject, { name, members, state, version }: Birth): Container {
  const { pod } = object.spec
  const tls = tlsOfMember(object)
  const probe = (path: string) => ({ httpGet: { path, port: METRICS_PORT } })
  return {
    name: 'etcd',
    image: imageOf(object, version),
    command: [
      '/usr/local/bin/etcd',
      `--data-dir=${DATA_DIR}`,
      `--name=${name}`,
      `--initial-advertise-peer-urls=${peerUrlOf(object, name)}`,
      `--listen-peer-urls=${URL.parse(peerUrlOf(object, name))?.protocol}//0.0.0.0:${PEER_PORT}`,
      `--listen-client-urls=${clientScheme(object)}://0.0.0.0:${CLIENT_PORT}`,
      `--advertise-client-urls=${clientScheme(object)}://${hostOf(object, name)}:${CLIENT_PORT}`,
      `--listen-metrics-urls=http://0.0.0.0:${METRICS_PORT}`,
      initialCluster(object, members),
      `--initial-cluster-state=${state}`,
      ...tls.flags,
      ...(state === 'new' ? [`--initial-cluster-token=${tokenOf(object)}`] : []),
    ],
    ...(pod.etcdEnv && { env: pod.etcdEnv }),
    ...resources(object),
    ports: [
      { name: 'server', containerPort: PEER_PORT, protocol: 'TCP' },
      { name: 'client', containerPort: CLIENT_PORT, protocol: 'TCP' },
      { name: 'metrics', containerPort: METRICS_PORT, protocol: 'TCP' },
    ],
    volumeMounts: [{ name: DATA_VOLUME, mountPath: DATA }, ...tls.mounts],
    securityContext: NO_MORE_RIGHTS,
    // A member is ready when it votes and reaches a quorum. There is no liveness probe, because it would interrupt a
    // defragmentation.
    readinessProbe: { ...probe('/readyz'), periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 2 },
    // Until a learner has caught up with the leader, it takes itself for a voter, so readiness waits for this probe.
    // The probe has no limit, so that it does not interrupt a long start.
    startupProbe: { ...probe(CAUGHT_UP), periodSeconds: 1, timeoutSeconds: 5, failureThreshold: UNLIMITED },
  }
}

/**
 * Returns an init container that waits for the member's own DNS name. With TLS, members refuse a member whose name they
 * cannot look up, and its process would end.
 */
function findsItself(object: ClusterObject, name: string): Container {
  const { busyboxImage, DNSTimeoutInSecond: seconds } = object.spec.pod
  const host = hostOf(object, name)
  const begin = seconds > 0 ? `end=$(($(date +%s) + ${seconds})); ` : ''
  const giveUp = seconds > 0 ? '[ $(date +%s) -lt $end ] || exit 1; ' : ''
  // nslookup of newer busybox versions does not try the search domains.
  const domains = `"" $(sed -n "s/^search//p" /etc/resolv.conf)`
  const look = `for d in ${domains}; do nslookup ${host}\${d:+.$d} && exit 0; done`
  // Not every busybox supports fractions of a second.
  const pause = 'sleep 0.2 2>/dev/null || sleep 1'
  return {
    name: 'check-dns',
    image: busyboxImage,
    command: ['/bin/sh', '-c', `${begin}while true; do ${look}; ${giveUp}${pause}; done`],
    securityContext: NO_MORE_RIGHTS,
    ...resources(object),
  }
}

const resources = ({ spec: { pod } }: ClusterObject): Pick<Container, 'resources'> =>
  pod.resources ? { resources: pod.resources } : {}

export const hasClaims = ({ spec }: ClusterObject): boolean => spec.pod.persistentVolumeClaimSpec !== undefined

export const claimFor = (object: ClusterObject, name: string): ClaimObject =>
  Claim.of({
    metadata: { name, labels: { ...labelsOf(object), etcd_node: name } },
    spec: object.spec.pod.persistentVolumeClaimSpec,
  })

export const versionIn = ({ spec }: ClusterObject): string => spec.version.replace(/^v/, '')

export const imageOf = ({ spec }: ClusterObject, version: string): string => `${spec.repository}:v${version}`

export const imageIn = ({ spec }: PodObject): string => etcdIn(spec)?.image ?? ''

const etcdIn = (spec: PodObject['spec']): Container | undefined => spec?.containers.find(({ name }) => name === 'etcd')

/**
 * Returns a digest of the settings that cannot be changed in place: the policy of pods, and the authorities that
 * members trust.
 */
export function policyOf({ spec: { pod, TLS } }: ClusterObject, authorities: readonly string[]): string {
  return createHash('sha256')
    .update(JSON.stringify([pod, TLS?.auto ? 'auto' : TLS, authorities]))
    .digest('hex')
    .slice(0, 16)
}

export const isOutdated = (policy: string, { metadata }: PodObject): boolean =>
  metadata.annotations?.[POLICY_ANNOTATION] !== policy

/** Whether clients reach the member in this pod over https. */
export const takesTls = ({ spec }: PodObject): boolean =>
  etcdIn(spec)?.command?.some((one) => one.startsWith('--listen-client-urls=https:')) === true

const initialCluster = (object: ClusterObject, members: readonly string[]): string =>
  `--initial-cluster=${members.map((name) => `${name}=${peerUrlOf(object, name)}`).join(',')}`

/** Returns the version that the pod was made for. */
export const versionOf = ({ metadata }: PodObject): string | undefined => metadata.annotations?.[VERSION_ANNOTATION]

/** Whether the process of the member runs. It may not answer yet. */
export const isUp = ({ status }: PodObject): boolean =>
  status?.containerStatuses?.find(({ name }) => name === 'etcd')?.state?.running !== undefined

/** The reasons of the kubelet for a container that waits because its image cannot be had. */
const UNPULLED = ['ErrImagePull', 'ImagePullBackOff', 'InvalidImageName', 'ErrImageNeverPull']

/** Whether no process of the member runs, because its image cannot be pulled. */
export const isUnpulled = (pod: PodObject): boolean => UNPULLED.includes(containerIn(pod)?.state?.waiting?.reason ?? '')

/** Whether the process of this pod forms a cluster if it finds no data. */
export const mayForm = ({ spec }: PodObject): boolean =>
  etcdIn(spec)?.command?.includes('--initial-cluster-state=new') === true

/** Whether the pod was started with exactly these members. */
export const wasToldOf = (object: ClusterObject, pod: PodObject, members: readonly string[]): boolean =>
  etcdIn(pod.spec)?.command?.includes(initialCluster(object, members)) === true

/**
 * Whether the status of a pod is of a container with its present image that has passed its startup probe. After a change
 * of the image, a member answers before the kubelet reports that its former container is gone. Until then the pod seems
 * to be ready, and sometimes again for a moment before the probe.
 */
export function hasPresentStatus(pod: PodObject): boolean {
  const container = containerIn(pod)
  if (container === undefined) return true
  return container.started !== false && container.containerID !== pod.metadata.annotations?.[REPLACED_ANNOTATION]
}

const containerIn = ({ status }: PodObject) => status?.containerStatuses?.find(({ name }) => name === 'etcd')

/** Returns the existing pod with another image. Its container is restarted, and its data and address stay. */
export function withVersion(object: ClusterObject, pod: PodObject, version: string): PodObject {
  const { metadata, spec } = pod
  if (spec === undefined) return pod
  const containers = spec.containers.map((one) =>
    one.name === 'etcd' ? { ...one, image: imageOf(object, version) } : one,
  )
  const annotations = {
    ...metadata.annotations,
    [VERSION_ANNOTATION]: version,
    [REPLACED_ANNOTATION]: containerIn(pod)?.containerID ?? '',
  }
  return { ...pod, metadata: { ...metadata, annotations }, spec: { ...spec, containers } }
}
