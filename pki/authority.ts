import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { type Subject, signCertificate } from './certificate.ts'

/** Who signs: its name, and its keys. */
export interface Authority {
  subject: Subject
  publicKey: KeyObject
  privateKey: KeyObject
}

export interface Signed {
  /** PEM. */
  certificate: string
  publicKey: KeyObject
  privateKey: KeyObject
}

/** From when, and for how many days. */
export interface Validity {
  now: Date
  days: number
}

const DAY_MS = 86_400_000

/** EC, P-256. */
export const newKeys = (): { publicKey: KeyObject; privateKey: KeyObject } =>
  generateKeyPairSync('ec', { namedCurve: 'P-256' })

/** A certificate authority that has signed itself. */
export function newAuthority(subject: Subject, validity: Validity): Authority & Signed {
  const authority = { subject, ...newKeys() }
  const certificate = signCertificate({ ...authority, issuer: authority, isCa: true, ...during(validity) })
  return { ...authority, certificate }
}

/** New keys and their certificate, good for clients and servers alike; `sans` are the addresses and names of a server. */
export function issueFrom(
  issuer: Authority,
  { subject, sans = [] }: { subject: Subject; sans?: readonly string[] },
  validity: Validity,
): Signed {
  const keys = newKeys()
  return { ...keys, certificate: signCertificate({ subject, sans, issuer, ...keys, ...during(validity) }) }
}

/** From an hour ago: a clock that was just corrected must not make certificates invalid. */
const during = ({ now, days }: Validity): { notBefore: Date; notAfter: Date } => ({
  notBefore: new Date(now.getTime() - 3_600_000),
  notAfter: new Date(now.getTime() + days * DAY_MS),
})
