import { createHash } from 'node:crypto'
import { Secret } from 'fairlead'
import type { EtcdTls } from '../client/index.ts'
import { PEER_CN, secretNameOf, textIn } from './certificates.ts'
import { named, type SecretObject } from './parts.ts'
import type { ClusterObject } from './resource.ts'

/** The Secrets that a user has made, for each use by members and by this function. */
export const PeerSecret = { ...Secret, byName: 'spec.TLS.static.member.peerSecret' } as const
export const ServerSecret = { ...Secret, byName: 'spec.TLS.static.member.serverSecret' } as const
export const OperatorSecret = { ...Secret, byName: 'spec.TLS.static.operatorSecret' } as const

const MEMBER = '/etc/etcdtls/member'
const OPERATOR_KEYS = ['etcd-client.crt', 'etcd-client.key', 'etcd-client-ca.crt'] as const

const peerFlags = (cert: string, key: string, ca: string): string[] => [
  '--peer-client-cert-auth=true',
  `--peer-trusted-ca-file=${ca}`,
  `--peer-cert-file=${cert}`,
  `--peer-key-file=${key}`,
]

const serverFlags = (cert: string, key: string, ca: string): string[] => [
  '--client-cert-auth=true',
  `--trusted-ca-file=${ca}`,
  `--cert-file=${cert}`,
  `--key-file=${key}`,
]

/** One Secret of a cluster, with its required keys and the way in which a member uses it. */
interface Use {
  secret: string
  keys: readonly [certificate: string, key: string, authority: string]
  /** The place in the pod of a member. Left out: members do not mount it. */
  mounted?: { volume: string; path: string; flags: (path: string) => string[] }
}

const filesIn = (path: string, name: string) => ({
  cert: `${path}/${name}.crt`,
  key: `${path}/${name}.key`,
  ca: `${path}/${name}-ca.crt`,
})

function usesOf(object: ClusterObject): Use[] {
  const { member, operatorSecret } = object.spec.TLS?.static ?? {}
  const uses: Use[] = object.spec.TLS?.auto === undefined ? [] : ownUses(object)
  if (member?.peerSecret !== undefined)
    uses.push({
      secret: member.peerSecret,
      keys: ['peer.crt', 'peer.key', 'peer-ca.crt'],
      mounted: {
        volume: 'member-peer-tls',
        path: `${MEMBER}/peer-tls`,
        flags(path) {
          const { cert, key, ca } = filesIn(path, 'peer')
          return peerFlags(cert, key, ca)
        },
      },
    })
  if (member?.serverSecret !== undefined)
    uses.push({
      secret: member.serverSecret,
      keys: ['server.crt', 'server.key', 'server-ca.crt'],
      mounted: {
        volume: 'member-server-tls',
        path: `${MEMBER}/server-tls`,
        flags(path) {
          const { cert, key, ca } = filesIn(path, 'server')
          return serverFlags(cert, key, ca)
        },
      },
    })
  if (operatorSecret !== undefined) uses.push({ secret: operatorSecret, keys: OPERATOR_KEYS })
  return uses
}

/** Returns the uses of the Secrets that this function makes. */
const ownUses = (object: ClusterObject): Use[] => [
  {
    secret: secretNameOf(object, 'member'),
    keys: ['server.crt', 'server.key', 'ca.crt'],
    mounted: {
      volume: 'member-tls',
      path: `${MEMBER}/tls`,
      flags: (path) => [
        ...peerFlags(`${path}/peer.crt`, `${path}/peer.key`, `${path}/ca.crt`),
        `--peer-cert-allowed-cn=${PEER_CN}`,
        ...serverFlags(`${path}/server.crt`, `${path}/server.key`, `${path}/ca.crt`),
      ],
    },
  },
  { secret: secretNameOf(object, 'operator'), keys: OPERATOR_KEYS },
]

/** Returns the first missing Secret or key. */
export function lackingSecret(object: ClusterObject, secrets: readonly SecretObject[]): string | undefined {
  const lacks = usesOf(object).flatMap(({ secret, keys }) => {
    const found = named(secrets, secret)
    if (found === undefined) return [`Secret ${secret} is missing`]
    return keys.filter((key) => textIn(found, key) === '').map((key) => `Secret ${secret} has no ${key}`)
  })
  return lacks[0]
}

/**
 * Returns digests of the authorities. Members read authorities only at their start, but certificates and keys again and
 * again.
 */
export const authoritiesOf = (object: ClusterObject, secrets: readonly SecretObject[]): string[] =>
  usesOf(object)
    .filter(({ mounted }) => mounted !== undefined)
    .map(({ secret, keys: [, , authority] }) => digestOf(textIn(named(secrets, secret), authority)))

export const digestOf = (text: string): string => createHash('sha256').update(text).digest('hex')

/** Returns the flags, volumes and mounts of a member. */
export function tlsOfMember(object: ClusterObject) {
  const mounted = usesOf(object).flatMap(({ secret, mounted }) => (mounted ? [{ secret, ...mounted }] : []))
  return {
    flags: mounted.flatMap(({ path, flags }) => flags(path)),
    volumes: mounted.map(({ secret, volume }) => ({ name: volume, secret: { secretName: secret } })),
    mounts: mounted.map(({ volume, path }) => ({ name: volume, mountPath: path, readOnly: true })),
  }
}

/** Returns the name of the Secret with a client certificate. */
export const operatorSecretOf = (object: ClusterObject): string | undefined =>
  usesOf(object).find(({ mounted }) => mounted === undefined)?.secret

/** Returns the certificate with which this function calls members. */
export function clientTls(
  object: ClusterObject,
  secrets: readonly SecretObject[],
): Omit<EtcdTls, 'servername'> | undefined {
  const use = usesOf(object).find(({ mounted }) => mounted === undefined)
  const secret = use && named(secrets, use.secret)
  if (use === undefined || secret === undefined) return undefined
  const [cert, key, ca] = use.keys.map((name) => textIn(secret, name))
  return { ca: ca ?? '', cert: cert ?? '', key: key ?? '' }
}
