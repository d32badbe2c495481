/** Longer ones are refused before anything is asked: nodejs accepts headers of 16 KiB. */
const MAX_LENGTH = 12_288

/** The token of `Authorization: Bearer TOKEN`; undefined: there is none. */
export function bearerToken(header: string | undefined): string | undefined {
  const [, token] = /^Bearer +([\w.~+/=-]+) *$/i.exec(header ?? '') ?? []
  return token === undefined || token.length > MAX_LENGTH ? undefined : token
}

export interface Claims {
  /** Milliseconds since 1970. */
  expiresAt?: number
  audiences?: string[]
}

/** Returns the claims of a JSON Web Token without a check of its signature: good for messages, not for trust. */
export function claimsOf(token: string): Claims {
  try {
    const payload = Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()
    const { exp, aud } = JSON.parse(payload) as { exp?: unknown; aud?: unknown }
    const audiences = [aud].flat().filter((one) => typeof one === 'string')
    return {
      ...(typeof exp === 'number' && { expiresAt: exp * 1000 }),
      ...(audiences.length > 0 && { audiences }),
    }
  } catch {
    return {}
  }
}
