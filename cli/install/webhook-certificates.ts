import { X509Certificate } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { issueFrom, newAuthority, signCertificate } from '#pki'
import { SYSTEM_NAMESPACE } from '#spec'
import {
  asIssued,
  base64,
  type IssuedCertificate,
  isGood,
  issuedIn,
  type TlsSecret,
  tlsSecret,
} from './certificates.ts'

/** The name of the Service and the Deployment of the webhook. */
export const WEBHOOKS = 'fairlead-webhooks'
export const WEBHOOK_SECRETS = { authority: `${WEBHOOKS}-ca`, leaf: `${WEBHOOKS}-tls` } as const

const DAY_MS = 86_400_000
/** A change of the authority makes each API server read all objects again, so it is rare. */
const CA_DAYS = 3650
const CA_RENEWED_BEFORE_MS = 365 * DAY_MS
const LEAF_DAYS = 90
const LEAF_RENEWED_BEFORE_MS = 30 * DAY_MS
const HOST = `${WEBHOOKS}.${SYSTEM_NAMESPACE}.svc`
const NAMES = [HOST, `${HOST}.cluster.local`, 'localhost']

/** The key of a Secret with the certificate of the authority that the authority before it has signed. */
const CROSS = 'cross.crt'

interface WebhookAuthority extends IssuedCertificate {
  /** What the API server has to trust, in PEM. */
  bundle: string
  /** In PEM; empty if there is no authority before this one. */
  cross: string
}

interface WebhookCertificates {
  /** The Secret of the authority, if it has to be written. */
  authority?: TlsSecret
  /** What the API server has to trust before the leaf is used, in PEM. */
  bundle: string
  /** The Secret of the webhook, if it has to be written. */
  leaf?: TlsSecret
  /** Whether a leaf is valid also for who trusts only the authority before this one. */
  isCrossSigned: boolean
}

/**
 * Returns the certificates of the webhook. A new authority overlaps with the one before it: the bundle has both until the
 * last leaf of the old one has ended, and new leaves come with the new authority as the old one has signed it. So every
 * leaf that is in use is valid for an API server with the bundle of before, with both, and with the new one.
 */
export function webhookCertificates(present: ReadonlyMap<string, KubeObject>, now: Date): WebhookCertificates {
  const stored = authorityIn(present.get(WEBHOOK_SECRETS.authority))
  const isKept = stored !== undefined && isGood(stored, now, CA_RENEWED_BEFORE_MS)
  const leaf = issuedIn(present.get(WEBHOOK_SECRETS.leaf))
  const authority = isKept ? withoutFormer(stored, now) : newAuthorityAfter(stored, now, trustedFor(leaf))
  const isIssued =
    leaf !== undefined &&
    isGood(leaf, now, LEAF_RENEWED_BEFORE_MS) &&
    leaf.certificate.verify(authority.certificate.publicKey) &&
    leaf.certificate.subjectAltName === NAMES.map((name) => `DNS:${name}`).join(', ')
  return {
    bundle: authority.bundle,
    isCrossSigned: authority.cross !== '',
    ...(authority !== stored && { authority: secretOfAuthority(authority) }),
    ...(!isIssued && { leaf: newLeaf(authority, now) }),
  }
}

function authorityIn(secret: KubeObject | undefined): WebhookAuthority | undefined {
  const issued = issuedIn(secret)
  const { [CROSS]: cross = '' } = (secret as { data?: Record<string, string> } | undefined)?.data ?? {}
  return issued && { ...issued, bundle: issued.authority, cross: Buffer.from(cross, 'base64').toString() }
}

function withoutFormer(stored: WebhookAuthority, now: Date): WebhookAuthority {
  const { certificate, bundle } = stored
  const isOverlap = now.getTime() < certificate.validFromDate.getTime() + (LEAF_DAYS + 1) * DAY_MS
  const alone = certificate.toString()
  return isOverlap || bundle === alone ? stored : { ...stored, bundle: alone, cross: '' }
}

/** The authority of a certificate in its Secret, which pods use on when the Secret of the authority is lost. */
function trustedFor(leaf: ReturnType<typeof issuedIn>): string {
  try {
    return leaf?.certificate.verify(new X509Certificate(leaf.authority).publicKey) ? leaf.authority : ''
  } catch {
    return ''
  }
}

function newAuthorityAfter(former: WebhookAuthority | undefined, now: Date, trusted: string): WebhookAuthority {
  const subject = { cn: `${WEBHOOKS}-ca-${now.getTime()}` }
  const authority = newAuthority(subject, { now, days: CA_DAYS })
  const isSigner = former?.certificate.checkPrivateKey(former.privateKey) === true
  const isTrusted = former !== undefined && former.certificate.validToDate > now
  const cross =
    isSigner && isTrusted
      ? signCertificate({
          subject,
          publicKey: authority.publicKey,
          issuer: issuerOf(former),
          isCa: true,
          notBefore: former.certificate.validFromDate,
          notAfter: former.certificate.validToDate,
        })
      : ''
  // Pods may still have a certificate of an authority before the former one.
  const bundle = authority.certificate + (isTrusted ? former.bundle : trusted)
  return { ...asIssued(authority), bundle, cross }
}

const issuerOf = ({ certificate, privateKey }: IssuedCertificate) => ({
  subject: { cn: certificate.subject.replace(/^CN=/, '') },
  publicKey: certificate.publicKey,
  privateKey,
})

function newLeaf(authority: WebhookAuthority, now: Date): TlsSecret {
  const request = { subject: { cn: HOST }, sans: NAMES }
  const { certificate, privateKey } = issueFrom(issuerOf(authority), request, { now, days: LEAF_DAYS })
  return tlsSecret(WEBHOOK_SECRETS.leaf, { chain: certificate + authority.cross, privateKey }, authority.bundle)
}

function secretOfAuthority({ certificate, privateKey, bundle, cross }: WebhookAuthority): TlsSecret {
  const secret = tlsSecret(WEBHOOK_SECRETS.authority, { chain: certificate.toString(), privateKey }, bundle)
  return cross === '' ? secret : { ...secret, data: { ...secret.data, [CROSS]: base64(cross) } }
}
