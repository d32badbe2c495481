import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { issueFrom, newAuthority, type Signed } from '#pki'
import { SYSTEM_NAMESPACE } from '#spec'

/** A Secret of type kubernetes.io/tls with the authority's certificate in ca.crt, as cert-manager creates them. */
export interface TlsSecret extends KubeObject {
  type: 'kubernetes.io/tls'
  /** Base64. */
  data: { 'tls.crt': string; 'tls.key': string; 'ca.crt': string; 'cross.crt'?: string }
}

/** The parsed contents of a TlsSecret. */
export interface IssuedCertificate {
  certificate: X509Certificate
  privateKey: KeyObject
}
interface StoredCertificate extends IssuedCertificate {
  /** The certificate of its authority in the same Secret, in PEM. */
  authority: string
}

const NATS = 'fairlead-nats'
const NATS_HOST = `${NATS}.${SYSTEM_NAMESPACE}`
const CONSOLE_HOST = `fairlead-console.${SYSTEM_NAMESPACE}`
const AUTHORITY = { secret: `${NATS}-ca`, subject: { cn: 'fairlead-nats-ca' }, days: 3650 }
const DAYS_VALID = 365

/**
 * The names in each certificate, by the name of its Secret: the DNS names of NATS and the console, and the names by
 * which NATS identifies its users.
 */
const LEAVES: Record<string, [string, ...string[]]> = {
  [`${NATS}-server`]: [
    NATS,
    NATS_HOST,
    `${NATS_HOST}.svc`,
    `${NATS_HOST}.svc.cluster.local`,
    // The name of one server of a cluster.
    `*.${NATS}`,
    'localhost',
  ],
  [`${NATS}-bridge`]: ['fairlead-bridge'],
  [`${NATS}-dispatcher`]: ['fairlead-dispatcher'],
  [`${NATS}-inspect`]: ['fairlead-inspect'],
  [`${NATS}-operate`]: ['fairlead-operate'],
  [`${NATS}-console`]: ['fairlead-console'],
  [`${NATS}-console-writes`]: ['fairlead-console-writes'],
  // NATS has no user with one of these names.
  'fairlead-console-tls': [`${CONSOLE_HOST}.svc`, CONSOLE_HOST, `${CONSOLE_HOST}.svc.cluster.local`, 'localhost'],
}

/** The parts of Fairlead that have a user of NATS for each cluster. */
const OF_CLUSTERS = ['bridge', 'dispatcher', 'inspect', 'operate', 'console', 'console-writes']

/** Returns the names in each certificate, with those of the users of these clusters. */
const leavesFor = (clusters: readonly string[]): typeof LEAVES => ({
  ...LEAVES,
  ...Object.fromEntries(
    clusters.flatMap((cluster) =>
      OF_CLUSTERS.map((part) => [`${NATS}-${part}.${cluster}`, [`fairlead-${part}.${cluster}`]]),
    ),
  ),
})

/** Returns the names of the Secrets of natsCertificates(). */
export const certificateSecrets = (clusters: readonly string[] = []): string[] => [
  AUTHORITY.secret,
  ...Object.keys(leavesFor(clusters)),
]

const DAY_MS = 86_400_000
/** Certificates that end within this time are renewed. */
const RENEWED_BEFORE_MS = 30 * DAY_MS
/** The authority is renewed earlier, so that it outlives all certificates that it issues. */
const CA_RENEWED_BEFORE_MS = DAYS_VALID * DAY_MS + RENEWED_BEFORE_MS

/**
 * Returns the Secrets for mutual TLS between NATS and the parts of Fairlead that have to be written: missing, invalid,
 * of another authority, for other names, or with an end within 30 days. `present` is keyed by name. The authority comes
 * first; without a valid one, all Secrets are new. `clusters`: those with users of their own.
 */
export function natsCertificates(
  present: ReadonlyMap<string, KubeObject>,
  now: Date,
  clusters: readonly string[] = [],
): TlsSecret[] {
  const known = issuedIn(present.get(AUTHORITY.secret))
  const authority = known && isGood(known, now, CA_RENEWED_BEFORE_MS) ? known : undefined
  const ca = authority ?? asIssued(newAuthority(AUTHORITY.subject, { now, days: AUTHORITY.days }))
  const isIssued = (name: string, sans: readonly string[]): boolean => {
    const leaf = issuedIn(present.get(name))
    return (
      leaf !== undefined &&
      isGood(leaf, now, RENEWED_BEFORE_MS) &&
      leaf.authority === ca.certificate.toString() &&
      leaf.certificate.verify(ca.certificate.publicKey) &&
      leaf.certificate.subjectAltName === sans.map((san) => `DNS:${san}`).join(', ')
    )
  }
  const wanting = Object.entries(leavesFor(clusters)).filter(([name, sans]) => !isIssued(name, sans))
  return [
    ...(authority === undefined ? [secretOf(AUTHORITY.secret, ca, ca)] : []),
    ...wanting.map(([name, sans]) => secretOf(name, newLeaf(sans, ca, now), ca)),
  ]
}

export const isGood = ({ certificate, privateKey }: IssuedCertificate, now: Date, renewedBeforeMs: number): boolean =>
  certificate.checkPrivateKey(privateKey) &&
  certificate.validFromDate <= now &&
  certificate.validToDate.getTime() - now.getTime() > renewedBeforeMs

/** Returns undefined if there is no certificate, or if it cannot be parsed. */
export function issuedIn(secret: KubeObject | undefined): StoredCertificate | undefined {
  const {
    'tls.crt': certificate,
    'tls.key': key,
    'ca.crt': ca,
  } = (secret as Partial<TlsSecret> | undefined)?.data ?? {}
  if (certificate === undefined || key === undefined || ca === undefined) return undefined
  try {
    return {
      certificate: new X509Certificate(Buffer.from(certificate, 'base64')),
      privateKey: createPrivateKey(Buffer.from(key, 'base64')),
      authority: Buffer.from(ca, 'base64').toString(),
    }
  } catch {
    return undefined
  }
}

export const asIssued = ({ certificate, privateKey }: Signed): IssuedCertificate => ({
  certificate: new X509Certificate(certificate),
  privateKey,
})

function newLeaf(
  sans: [string, ...string[]],
  { certificate: { publicKey }, privateKey }: IssuedCertificate,
  now: Date,
): IssuedCertificate {
  const issuer = { subject: AUTHORITY.subject, publicKey, privateKey }
  return asIssued(issueFrom(issuer, { subject: { cn: sans[0] }, sans }, { now, days: DAYS_VALID }))
}

const secretOf = (
  name: string,
  { certificate, privateKey }: IssuedCertificate,
  authority: IssuedCertificate,
): TlsSecret => tlsSecret(name, { chain: certificate.toString(), privateKey }, authority.certificate.toString())

/** `chain`: a certificate, and those between it and its authority. All are PEM. */
export const tlsSecret = (
  name: string,
  { chain, privateKey }: { chain: string; privateKey: KeyObject },
  authority: string,
): TlsSecret => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name, namespace: SYSTEM_NAMESPACE, labels: { 'app.kubernetes.io/part-of': 'fairlead' } },
  type: 'kubernetes.io/tls',
  data: {
    'tls.crt': base64(chain),
    'tls.key': base64(privateKey.export({ type: 'pkcs8', format: 'pem' })),
    'ca.crt': base64(authority),
  },
})

export const base64 = (pem: string | Buffer): string => Buffer.from(pem).toString('base64')
