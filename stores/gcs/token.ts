import { createSign } from 'node:crypto'
import { StoreError } from '../errors.ts'
import type { HttpClient } from '../http.ts'

/** A token that was requested elsewhere, or the key of a service account, with which tokens are requested. */
export type GcsCredentials = { accessToken: string } | { serviceAccount: ServiceAccountKey }

/** The fields of the file credentials.json. */
export interface ServiceAccountKey {
  client_email: string
  private_key: string
  private_key_id?: string | undefined
  token_uri?: string | undefined
}

const SCOPE = 'https://www.googleapis.com/auth/devstorage.read_write'
const TOKEN_URI = 'https://oauth2.googleapis.com/token'
const GRANT = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
const LIFE_SECONDS = 3600
/** How long before its expiry a token is renewed. */
const SPARE_MS = 300_000

/** Parses the key file. Throws an Error that names the missing field, without any value of the file. */
export function parseServiceAccount(text: string): ServiceAccountKey {
  const file = parsed(text) as Partial<ServiceAccountKey> & { type?: string }
  if (file.type !== undefined && file.type !== 'service_account')
    throw new Error(
      `the file credentials.json is of the type ${JSON.stringify(file.type)}: give the key of a service account`,
    )
  const { client_email, private_key } = file
  if (client_email === undefined || private_key === undefined)
    throw new Error(
      'the file credentials.json lacks client_email or private_key: give the JSON key of a service account',
    )
  return { client_email, private_key, private_key_id: file.private_key_id, token_uri: file.token_uri }
}

function parsed(text: string): object {
  try {
    return JSON.parse(text) as object
  } catch {
    throw new Error('the file credentials.json is not JSON: give the JSON key of a service account')
  }
}

/** Provides access tokens for requests: requested when the first is needed, and again before each expires. */
export class TokenSource {
  readonly #http: HttpClient
  readonly #credentials: GcsCredentials
  #token: { text: string; until: number } | undefined

  constructor(http: HttpClient, credentials: GcsCredentials) {
    this.#http = http
    this.#credentials = credentials
  }

  async token(): Promise<string> {
    if ('accessToken' in this.#credentials) return this.#credentials.accessToken
    if (this.#token === undefined || Date.now() > this.#token.until - SPARE_MS)
      this.#token = await this.#draw(this.#credentials.serviceAccount)
    return this.#token.text
  }

  async #draw(account: ServiceAccountKey): Promise<{ text: string; until: number }> {
    const url = new URL(account.token_uri ?? TOKEN_URI)
    const what = `POST ${url.href} for ${account.client_email}`
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const { status, text } = await this.#http.answer(() => {
      const body = new URLSearchParams({ grant_type: GRANT, assertion: assertion(account, url.href, Date.now()) })
      return { method: 'POST', url, headers, body: Buffer.from(body.toString()) }
    }, what)
    if (status !== 200)
      throw new StoreError(
        'refused',
        `${what}: ${status}: is the key of the service account still valid, and the clock right?`,
      )
    const { access_token, expires_in = LIFE_SECONDS } = JSON.parse(text) as {
      access_token: string
      expires_in?: number
    }
    return { text: access_token, until: Date.now() + expires_in * 1000 }
  }
}

/** Returns a JSON Web Token, signed with RS256. */
function assertion(
  { client_email, private_key, private_key_id }: ServiceAccountKey,
  audience: string,
  now: number,
): string {
  const issued = Math.floor(now / 1000)
  const head = { alg: 'RS256', typ: 'JWT', ...(private_key_id !== undefined && { kid: private_key_id }) }
  const claims = { iss: client_email, scope: SCOPE, aud: audience, iat: issued, exp: issued + LIFE_SECONDS }
  const text = [head, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')
  return `${text}.${createSign('RSA-SHA256').update(text).sign(private_key, 'base64url')}`
}
