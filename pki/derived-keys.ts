import { createECDH, createHmac, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto'

interface Keys {
  publicKey: KeyObject
  privateKey: KeyObject
}

/** RFC 8410: what comes before the 32 bytes of an Ed25519 key in PKCS #8. */
const PKCS8_ED25519 = Buffer.from('302e020100300506032b657004220420', 'hex')
/** Number of points of P-256 (FIPS 186-4, D.1.2.3). */
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n

/** Ed25519: the same secret gives the same keys, and these give the same signatures. */
export function signingKeysFrom(secret: string | Buffer): Keys {
  const seed = createHmac('sha256', secret).update('Ed25519').digest()
  return withPublic(createPrivateKey({ key: Buffer.concat([PKCS8_ED25519, seed]), format: 'der', type: 'pkcs8' }))
}

/** EC, P-256: the same secret gives the same keys. */
export function keysFrom(secret: string | Buffer): Keys {
  // 512 bits, so that the remainder is as good as evenly distributed.
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
