import { createECDH, createHmac, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto'

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
