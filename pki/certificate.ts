import { createHash, type KeyObject, randomBytes, sign } from 'node:crypto'
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
