import { createHash } from 'node:crypto'
import type { ClusterObject } from './resource.ts'

export const CLIENT_PORT = 2379
export const PEER_PORT = 2380
/** The port of plain HTTP without keys or values, for probes, which have no certificate. */
export const METRICS_PORT = 2381

export const labelsOf = ({ metadata }: ClusterObject): Record<string, string> => ({
  app: 'etcd',
  etcd_cluster: metadata.name,
})

export const selectorOf = (object: ClusterObject): string =>
  Object.entries(labelsOf(object))
    .map(([key, value]) => `${key}=${value}`)
    .join(',')

export const clientServiceOf = ({ metadata }: ClusterObject): string => `${metadata.name}-client`

/**
 * Returns the host name by which other members reach this one. Its first label is the name of the member, of its pod
 * and of its claim.
 */
export const hostOf = ({ metadata, spec }: ClusterObject, member: string): string =>
  `${member}.${metadata.name}.${metadata.namespace ?? 'default'}.svc${spec.pod.ClusterDomain}`

export const peerUrlOf = (object: ClusterObject, member: string): string =>
  `${peerScheme(object)}://${hostOf(object, member)}:${PEER_PORT}`

const peerScheme = ({ spec: { TLS } }: ClusterObject): string =>
  TLS?.auto || TLS?.static?.member?.peerSecret ? 'https' : 'http'
export const clientScheme = ({ spec: { TLS } }: ClusterObject): string =>
  TLS?.auto || TLS?.static?.member?.serverSecret ? 'https' : 'http'

export const memberOf = (peerURL: string): string => URL.parse(peerURL)?.hostname.split('.')[0] ?? ''

/** Returns a suffix for the incarnation. Each restore makes another etcd cluster with other identifiers. */
const generation = ({ status }: ClusterObject): string =>
  status.incarnation === undefined || status.incarnation === 0 ? '' : `-${status.incarnation}`

/**
 * Returns the name of a new member. The raft index grows with every change of the members, so a name never occurs twice
 * in one etcd cluster.
 */
export const nextName = (object: ClusterObject, raftIndex: number): string =>
  `${object.metadata.name}-${letters(`${object.metadata.uid}${generation(object)} ${raftIndex}`)}`

export const seedName = (object: ClusterObject): string =>
  `${object.metadata.name}-${letters(`${object.metadata.uid} seed${generation(object)}`)}`

/**
 * Returns the cluster token. It differs for clusters of the same name that are made one after the other, so that they
 * do not accept each other's members.
 */
export const tokenOf = (object: ClusterObject): string => `${object.metadata.uid}${generation(object)}`

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789'

const letters = (text: string): string =>
  [...createHash('sha256').update(text).digest().subarray(0, 10)]
    .map((byte) => ALPHABET[byte % ALPHABET.length])
    .join('')
