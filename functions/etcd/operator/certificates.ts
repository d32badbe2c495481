import { createECDH, createHmac, createPrivateKey, createPublicKey, type KeyObject, X509Certificate } from 'node:crypto'
import { Secret } from 'fairlead'
import { LRUCache } from 'lru-cache'
import { type Subject, signCertificate } from '#pki'
import { clientServiceOf, labelsOf } from './names.ts'
import type { SecretObject } from './parts.ts'
import type { ClusterObject } from './resource.ts'

/** The authority that signs certificates. */
export interface Issuer {
  subject: Subject
  /** The private key in PEM. */
  key: string
}

interface Leaf {
  /** The CN, which etcd uses as the name of the user. */
  cn: string
  certificate: string
  key: string
  hosts?: (object: ClusterObject) => string[]
}

interface Use {
  suffix: string
  /** The key of the Secret with all trusted authorities. */
  bundle: string
  leaves: readonly Leaf[]
}

/**
 * The CN of members. Members accept only this CN for peers, because certificates of clients have the same authority.
 */
export const PEER_CN = 'etcd-peer'
export const ROOT = 'root'

/** The Secrets that the function makes. One volume has all files that a member needs, so that they change together. */
export const USES = {
  member: {
    suffix: 'member-tls',
    bundle: 'ca.crt',
    leaves: [
      { cn: PEER_CN, certificate: 'peer.crt', key: 'peer.key', hosts: memberHosts },
      { cn: 'etcd-server', certificate: 'server.crt', key: 'server.key', hosts: serverHosts },
    ],
  },
  // The keys are those of the original operator, so that an EtcdBackup can name the Secret.
  operator: {
    suffix: 'operator-tls',
    bundle: 'etcd-client-ca.crt',
    leaves: [{ cn: ROOT, certificate: 'etcd-client.crt', key: 'etcd-client.key' }],
  },
  client: {
    suffix: 'client-tls',
    bundle: 'ca.crt',
    leaves: [{ cn: 'client', certificate: 'tls.crt', key: 'tls.key' }],
  },
} as const satisfies Record<string, Use>

export const secretNameOf = ({ metadata }: ClusterObject, use: keyof typeof USES): string =>
  `${metadata.name}-${USES[use].suffix}`

/**
 * Returns the host names of members. They include the domain of the cluster, because etcd looks up the name of a peer's
 * address.
 */
function memberHosts({ metadata: { name, namespace = 'default' }, spec }: ClusterObject): string[] {
  const domains = new Set(['', '.cluster.local', spec.pod.ClusterDomain])
  return [...[...domains].map((domain) => `*.${name}.${namespace}.svc${domain}`), 'localhost']
}

function serverHosts(object: ClusterObject): string[] {
  const { namespace = 'default' } = object.metadata
  const service = clientServiceOf(object)
  const domains = new Set(['', '.cluster.local', object.spec.pod.ClusterDomain])
  const ofService = [...domains].map((domain) => `${service}.${namespace}.svc${domain}`)
  return [...memberHosts(object), service, `${service}.${namespace}`, ...ofService, '127.0.0.1']
}

const DAY_MS = 86_400_000

/**
 * Returns the validity of certificates that were issued at a time. It begins an hour before, because clocks may differ.
 */
export const validity = (issuedAt: string, days: number): { notBefore: Date; notAfter: Date } => ({
  notBefore: new Date(Date.parse(issuedAt) - 3_600_000),
  notAfter: new Date(Date.parse(issuedAt) + days * DAY_MS),
})

/**
 * The recently issued certificates, keyed by a digest of all inputs. Issuing takes milliseconds and gives the same
 * result each time.
 */
const known = new LRUCache<string, Record<string, string>>({ max: 256 })

/**
 * Returns the keys and certificates of a Secret. The same issuer and time give the same bytes, because all are derived
 * from the issuer's key.
 */
export function issued(
  object: ClusterObject,
  use: keyof typeof USES,
  issuer: Issuer,
  during: ReturnType<typeof validity>,
): Record<string, string> {
  const leaves: readonly Leaf[] = USES[use].leaves
  const drawn = (what: string) => createHmac('sha256', issuer.key).update(what)
  const issue = ({ cn, certificate, key, hosts }: Leaf) => {
    const sans = hosts?.(object) ?? []
    const which = JSON.stringify([cn, during, sans])
    const id = drawn(which).digest('hex')
    const before = known.get(id)
    if (before !== undefined) return before
    const privateKey = createPrivateKey(issuer.key)
    const signer = { subject: issuer.subject, privateKey, publicKey: createPublicKey(privateKey) }
    const keys = keysFrom(drawn(`key ${which}`).digest())
    const serial = drawn(`serial ${which}`).digest().subarray(0, 16)
    const signed = signCertificate({ subject: { cn }, sans, issuer: signer, serial, ...keys, ...during })
    const made = { [certificate]: signed, [key]: pemOf(keys.privateKey) }
    known.set(id, made)
    return made
  }
  return Object.assign({}, ...leaves.map(issue)) as Record<string, string>
}

interface Keys {
  publicKey: KeyObject
  privateKey: KeyObject
}

/** The prefix of a 32-byte Ed25519 key in PKCS #8 (RFC 8410). */
const PKCS8_ED25519 = Buffer.from('302e020100300506032b657004220420', 'hex')
/** The order of P-256 (FIPS 186-4, D.1.2.3). */
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n

/** Derives Ed25519 keys: the same secret gives the same keys, and the same signatures. */
export function signingKeysFrom(secret: string | Buffer): Keys {
  const seed = createHmac('sha256', secret).update('Ed25519').digest()
  return withPublic(createPrivateKey({ key: Buffer.concat([PKCS8_ED25519, seed]), format: 'der', type: 'pkcs8' }))
}

/** Derives EC keys on P-256: the same secret gives the same keys. */
export function keysFrom(secret: string | Buffer): Keys {
  // A hash of 512 bits makes the distribution of the remainder practically uniform.
  const wide = BigInt(`0x${createHmac('sha512', secret).update('P-256').digest('hex')}`)
  const d = Buffer.from(((wide % (ORDER - 1n)) + 1n).toString(16).padStart(64, '0'), 'hex')
  const curve = createECDH('prime256v1')
  curve.setPrivateKey(d)
  const point = curve.getPublicKey()
  const part = (bytes: Buffer): string => bytes.toString('base64url')
  const jwk = { kty: 'EC', crv: 'P-256', d: part(d), x: part(point.subarray(1, 33)), y: part(point.subarray(33)) }
  return withPublic(createPrivateKey({ key: jwk, format: 'jwk' }))
}

const withPublic = (privateKey: KeyObject): Keys => ({ privateKey, publicKey: createPublicKey(privateKey) })

export const pemOf = (key: KeyObject): string => key.export({ type: 'pkcs8', format: 'pem' }) as string

/** Returns the keys and certificates in a stored Secret. Undefined: one of them is missing. */
export function storedIn(secret: SecretObject | undefined, use: keyof typeof USES): Record<string, string> | undefined {
  const names = USES[use].leaves.flatMap(({ certificate, key }) => [certificate, key])
  const texts = names.map((name) => [name, textIn(secret, name)] as const)
  return texts.every(([, text]) => text !== '') ? Object.fromEntries(texts) : undefined
}

export const textIn = (secret: SecretObject | undefined, key: string): string =>
  Buffer.from(secret?.data?.[key] ?? '', 'base64').toString('utf8')

export function secretOf(
  object: ClusterObject,
  name: string,
  texts: Record<string, string>,
  more: Partial<SecretObject> = {},
): SecretObject {
  const data = Object.entries(texts).map(([key, text]) => [key, Buffer.from(text).toString('base64')])
  return Secret.of({
    metadata: { name, labels: labelsOf(object) },
    type: 'Opaque',
    data: Object.fromEntries(data),
    ...more,
  })
}

/** Returns when the certificate expires. */
export const endOf = (certificate: string): string => new Date(parsed(certificate).validTo).toISOString()

/** Returns the name that etcd uses as the user of this certificate. */
export const userIn = (certificate: string): string | undefined =>
  certificate === '' ? undefined : /^CN=(.*)$/m.exec(parsed(certificate).subject)?.[1]

/** Parses a certificate and caches it, because each run reads the certificates of its cluster, which rarely change. */
function parsed(certificate: string): X509Certificate {
  const before = read.get(certificate)
  if (before !== undefined) return before
  const one = new X509Certificate(certificate)
  read.set(certificate, one)
  return one
}

const read = new LRUCache<string, X509Certificate>({ max: 256 })
