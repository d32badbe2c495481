import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign, X509Certificate } from 'node:crypto'
import { createRequire } from 'node:module'
import { isIP, isIPv6 } from 'node:net'
import type * as asn1Schema from '@peculiar/asn1-schema'
import type * as asn1 from '@peculiar/asn1-x509'

export interface Subject {
  cn: string
  /** Organizations, which Kubernetes treats as groups. */
  o?: string[]
}

export interface CertificateRequest {
  subject: Subject
  publicKey: KeyObject
  /** IP addresses and DNS names. */
  sans?: readonly string[]
  issuer: { subject: Subject; publicKey: KeyObject; privateKey: KeyObject }
  isCa?: boolean
  /** Up to 19 bytes, unique for the issuer. Default: random. */
  serial?: Buffer
  notBefore: Date
  notAfter: Date
}

const ECDSA_WITH_SHA256 = '1.2.840.10045.4.3.2'
const ED25519 = '1.3.101.112'
const COMMON_NAME = '2.5.4.3'
const ORGANIZATION = '2.5.4.10'

type Library = typeof asn1 & typeof asn1Schema
let library: Library | undefined
const require = createRequire(import.meta.url)

/** Loads the library with the first certificate, because that takes 90 ms and 15 MiB. */
const loaded = (): Library =>
  (library ??= { ...require('@peculiar/asn1-schema'), ...require('@peculiar/asn1-x509') } as Library)

/**
 * Returns an X.509 v3 certificate (RFC 5280) in PEM, signed with ECDSA-SHA256 by an EC key, or with Ed25519. With an
 * Ed25519 key and a serial, the same request gives the same certificate.
 */
export function signCertificate(request: CertificateRequest): string {
  const { issuer, subject, serial = randomBytes(16), notBefore, notAfter } = request
  const { AlgorithmIdentifier, AsnConvert, Certificate, Extensions, TBSCertificate, Validity, Version } = loaded()
  const isEdwards = issuer.privateKey.asymmetricKeyType === 'ed25519'
  const algorithm = new AlgorithmIdentifier({ algorithm: isEdwards ? ED25519 : ECDSA_WITH_SHA256 })
  const tbsCertificate = new TBSCertificate({
    version: Version.v3,
    serialNumber: positive(serial),
    signature: algorithm,
    issuer: nameOf(issuer.subject),
    validity: new Validity({ notBefore, notAfter }),
    subject: nameOf(subject),
    subjectPublicKeyInfo: AsnConvert.parse(spki(request.publicKey), loaded().SubjectPublicKeyInfo),
    extensions: new Extensions(extensionsOf(request)),
  })
  const toBeSigned = Buffer.from(AsnConvert.serialize(tbsCertificate))
  const signatureValue = bytesOf(sign(isEdwards ? null : 'sha256', toBeSigned, issuer.privateKey))
  const certificate = new Certificate({ tbsCertificate, signatureAlgorithm: algorithm, signatureValue })
  return new X509Certificate(Buffer.from(AsnConvert.serialize(certificate))).toString()
}

function extensionsOf({ issuer, publicKey, isCa = false, sans = [] }: CertificateRequest): asn1.Extension[] {
  const x = loaded()
  const extension = (extnID: string, value: object, critical = false): asn1.Extension =>
    new x.Extension({ extnID, critical, extnValue: new x.OctetString(x.AsnConvert.serialize(value)) })
  const { digitalSignature, keyCertSign, cRLSign } = x.KeyUsageFlags
  const identifiers = [
    extension(x.id_ce_subjectKeyIdentifier, new x.SubjectKeyIdentifier(keyId(publicKey))),
    extension(
      x.id_ce_authorityKeyIdentifier,
      new x.AuthorityKeyIdentifier({ keyIdentifier: new x.KeyIdentifier(keyId(issuer.publicKey)) }),
    ),
  ]
  if (isCa) {
    const usage = new x.KeyUsage(digitalSignature | keyCertSign | cRLSign)
    const constraints = extension(x.id_ce_basicConstraints, new x.BasicConstraints({ cA: true }), true)
    return [constraints, extension(x.id_ce_keyUsage, usage, true), ...identifiers]
  }
  const names = new x.SubjectAlternativeName(sans.map((san) => new x.GeneralName(generalNameOf(san))))
  return [
    extension(x.id_ce_keyUsage, new x.KeyUsage(digitalSignature), true),
    extension(x.id_ce_extKeyUsage, new x.ExtendedKeyUsage([x.id_kp_serverAuth, x.id_kp_clientAuth])),
    ...(sans.length > 0 ? [extension(x.id_ce_subjectAltName, names)] : []),
    ...identifiers,
  ]
}

/** The library does not read IPv4 addresses at the end of IPv6 addresses. A URL has them as hexadecimal digits. */
function generalNameOf(san: string): Partial<asn1.GeneralName> {
  if (isIP(san) === 0) return { dNSName: san }
  return { iPAddress: isIPv6(san) ? new URL(`http://[${san.split('%')[0]}]`).hostname.slice(1, -1) : san }
}

function nameOf({ cn, o = [] }: Subject): asn1.Name {
  const { AttributeTypeAndValue, AttributeValue, Name, RelativeDistinguishedName } = loaded()
  const attribute = (type: string, utf8String: string): asn1.RelativeDistinguishedName =>
    new RelativeDistinguishedName([new AttributeTypeAndValue({ type, value: new AttributeValue({ utf8String }) })])
  return new Name([...o.map((group) => attribute(ORGANIZATION, group)), attribute(COMMON_NAME, cn)])
}

/** Returns a serial number as DER has it: with a zero byte in front of a set sign bit, and no other zeros in front. */
function positive(serial: Buffer): ArrayBuffer {
  const significant = serial.subarray(serial.findIndex((byte) => byte !== 0))
  return bytesOf(significant.readUInt8() >= 0x80 ? Buffer.concat([Buffer.of(0), significant]) : significant)
}

const bytesOf = (bytes: Uint8Array): ArrayBuffer => new Uint8Array(bytes).buffer

const spki = (key: KeyObject): Buffer => key.export({ type: 'spki', format: 'der' })

const keyId = (key: KeyObject): Buffer => createHash('sha1').update(spki(key)).digest()

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
