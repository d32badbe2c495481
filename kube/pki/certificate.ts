import {
  createECDH,
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from 'node:crypto'
import { isIPv4, isIPv6 } from 'node:net'
import * as der from './der.ts'

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
const SUBJECT_KEY_ID = '2.5.29.14'
const KEY_USAGE = '2.5.29.15'
const SUBJECT_ALT_NAME = '2.5.29.17'
const BASIC_CONSTRAINTS = '2.5.29.19'
const AUTHORITY_KEY_ID = '2.5.29.35'
const EXTENDED_KEY_USAGE = '2.5.29.37'
const SERVER_AUTH = '1.3.6.1.5.5.7.3.1'
const CLIENT_AUTH = '1.3.6.1.5.5.7.3.2'

/**
 * Returns an X.509 v3 certificate (RFC 5280) in PEM, signed with ECDSA-SHA256 by an EC key, or with Ed25519. With an
 * Ed25519 key and a serial, the same request gives the same certificate.
 */
export function signCertificate(request: CertificateRequest): string {
  const isEdwards = request.issuer.privateKey.asymmetricKeyType === 'ed25519'
  const algorithm = der.sequence(der.oid(isEdwards ? ED25519 : ECDSA_WITH_SHA256))
  const toBeSigned = der.sequence(
    der.explicit(0, der.integer(Buffer.of(2))),
    der.integer(request.serial ?? randomBytes(16)),
    algorithm,
    name(request.issuer.subject),
    der.sequence(der.time(request.notBefore), der.time(request.notAfter)),
    name(request.subject),
    spki(request.publicKey),
    der.explicit(3, der.sequence(...extensions(request))),
  )
  const signature = sign(isEdwards ? null : 'sha256', toBeSigned, request.issuer.privateKey)
  return pem(der.sequence(toBeSigned, algorithm, der.bits(signature)))
}

function extensions(request: CertificateRequest): der.Der[] {
  const identifiers = [
    extension(SUBJECT_KEY_ID, der.octets(keyId(request.publicKey))),
    extension(AUTHORITY_KEY_ID, der.sequence(der.implicit(0, keyId(request.issuer.publicKey)))),
  ]
  // Bits of KeyUsage: digitalSignature 0x80, keyCertSign 0x04, cRLSign 0x02.
  if (request.isCa) {
    const constraints = extension(BASIC_CONSTRAINTS, der.sequence(der.boolean(true)), true)
    return [constraints, extension(KEY_USAGE, der.bits(Buffer.of(0x86), 1), true), ...identifiers]
  }
  const sans = request.sans ?? []
  return [
    extension(KEY_USAGE, der.bits(Buffer.of(0x80), 7), true),
    extension(EXTENDED_KEY_USAGE, der.sequence(der.oid(SERVER_AUTH), der.oid(CLIENT_AUTH))),
    ...(sans.length > 0 ? [extension(SUBJECT_ALT_NAME, der.sequence(...sans.map(generalName)))] : []),
    ...identifiers,
  ]
}

function extension(id: string, value: der.Der, critical = false): der.Der {
  return der.sequence(der.oid(id), ...(critical ? [der.boolean(true)] : []), der.octets(value))
}

function generalName(san: string): der.Der {
  if (isIPv4(san)) return der.implicit(7, Buffer.from(san.split('.').map(Number)))
  return isIPv6(san) ? der.implicit(7, bytesOfIPv6(san)) : der.implicit(2, Buffer.from(san))
}

/** Returns the 16 bytes of an address. A URL has it in groups of hexadecimal digits, without an IPv4 address at its end. */
function bytesOfIPv6(address: string): Buffer {
  const [withoutZone = ''] = address.split('%')
  const [front = [], back = []] = new URL(`http://[${withoutZone}]`).hostname
    .slice(1, -1)
    .split('::')
    .map((groups) => groups.split(':').filter((group) => group !== ''))
  const zeros = Array.from({ length: 8 - front.length - back.length }, () => '0')
  return Buffer.from([...front, ...zeros, ...back].map((group) => group.padStart(4, '0')).join(''), 'hex')
}

function name({ cn, o = [] }: Subject): der.Der {
  const attribute = (id: string, value: string): der.Der => der.set(der.sequence(der.oid(id), der.utf8(value)))
  return der.sequence(...o.map((group) => attribute(ORGANIZATION, group)), attribute(COMMON_NAME, cn))
}

function spki(key: KeyObject): Buffer {
  return key.export({ type: 'spki', format: 'der' })
}

function keyId(key: KeyObject): Buffer {
  return createHash('sha1').update(spki(key)).digest()
}

function pem(certificate: der.Der): string {
  const lines = certificate.toString('base64').replaceAll(/.{64}/g, '$&\n').trimEnd()
  return `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`
}

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
