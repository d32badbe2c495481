import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { type Subject, signCertificate } from './certificate.ts'

/** The issuer of a certificate: its name and its keys. */
export interface Authority {
  subject: Subject
  publicKey: KeyObject
  privateKey: KeyObject
}

export interface Signed {
  /** The certificate in PEM. */
  certificate: string
  publicKey: KeyObject
  privateKey: KeyObject
}

/** The beginning of the validity, and its length in days. */
export interface Validity {
  now: Date
  days: number
}

const DAY_MS = 86_400_000

/** Generates EC keys on P-256. */
export const newKeys = (): { publicKey: KeyObject; privateKey: KeyObject } =>
  generateKeyPairSync('ec', { namedCurve: 'P-256' })

/** Creates a self-signed certificate authority. */
export function newAuthority(subject: Subject, validity: Validity): Authority & Signed {
  const authority = { subject, ...newKeys() }
  const certificate = signCertificate({ ...authority, issuer: authority, isCa: true, ...during(validity) })
  return { ...authority, certificate }
}

/** Creates keys and a certificate for clients and servers; `sans` are the addresses and names of a server. */
export function issueFrom(
  issuer: Authority,
  { subject, sans = [] }: { subject: Subject; sans?: readonly string[] },
  validity: Validity,
): Signed {
  const keys = newKeys()
  return { ...keys, certificate: signCertificate({ subject, sans, issuer, ...keys, ...during(validity) }) }
}

/** The validity begins an hour ago, so that certificates are valid on machines whose clock is slightly behind. */
const during = ({ now, days }: Validity): { notBefore: Date; notAfter: Date } => ({
  notBefore: new Date(now.getTime() - 3_600_000),
  notAfter: new Date(now.getTime() + days * DAY_MS),
})
