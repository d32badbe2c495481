import type { Credentials } from './credentials.ts'
import { RegistryError } from './errors.ts'

/** `Bearer realm="…",service="…"` of a WWW-Authenticate header. */
export interface Challenge {
  scheme: string
  parameters: Record<string, string>
}

export function parseChallenge(header: string | null): Challenge | undefined {
  const [, scheme = '', rest = ''] = /^\s*(\w+)\s*(.*)$/s.exec(header ?? '') ?? []
  if (scheme === '') return undefined
  const pairs = [...rest.matchAll(/(\w+)=(?:"([^"]*)"|([^\s,]+))/g)]
  const parameters = Object.fromEntries(
    pairs.map(([, key = '', quoted, plain]) => [key.toLowerCase(), quoted ?? plain ?? '']),
  )
  return { scheme: scheme.toLowerCase(), parameters }
}

interface Asked {
  /** Address of the registry that has sent the challenge. */
  origin: string
  /** `repository:team/app:pull,push` */
  scopes: readonly string[]
  credentials: Credentials | undefined
}

/** Returns the Authorization header that answers the registry's challenge; undefined without suitable credentials. */
export async function authorizationFor(
  { scheme, parameters }: Challenge,
  { origin, scopes, credentials }: Asked,
): Promise<string | undefined> {
  if (scheme === 'basic') return credentials && 'username' in credentials ? basic(credentials) : undefined
  if (scheme !== 'bearer') return undefined
  const realm = URL.canParse(parameters['realm'] ?? '') ? new URL(parameters['realm'] ?? '') : undefined
  if (realm === undefined || (realm.protocol !== 'https:' && !origin.startsWith('http:')))
    throw new RegistryError(
      `${origin} names "${parameters['realm']}" as its token service, which is not an https address`,
    )
  const answer = await fetch(...tokenRequest(realm, parameters['service'], scopes, credentials)).catch(
    (cause: unknown) => {
      throw new RegistryError(`the token service ${realm.origin} of ${origin} cannot be reached`, { cause })
    },
  )
  if (!answer.ok) {
    await answer.body?.cancel()
    // The registry then answers the request without a token, with its own error.
    if (answer.status === 401 || answer.status === 403) return undefined
    throw new RegistryError(`the token service ${realm.origin} has answered with ${answer.status}`, {
      status: answer.status,
    })
  }
  const { token, access_token: accessToken } = (await answer.json()) as { token?: string; access_token?: string }
  return `Bearer ${token ?? accessToken ?? ''}`
}

function tokenRequest(
  realm: URL,
  service: string | undefined,
  scopes: readonly string[],
  credentials: Credentials | undefined,
): [URL, RequestInit] {
  const named: [string, string][] = service === undefined ? [] : [['service', service]]
  if (credentials && 'identityToken' in credentials) {
    const body = new URLSearchParams([
      ['grant_type', 'refresh_token'],
      ...named,
      ['client_id', 'fairlead'],
      ['scope', scopes.join(' ')],
      ['refresh_token', credentials.identityToken],
    ])
    return [realm, { method: 'POST', body }]
  }
  const url = new URL(realm)
  for (const [key, value] of [...named, ...scopes.map((scope): [string, string] => ['scope', scope])])
    url.searchParams.append(key, value)
  return [url, { headers: credentials ? { authorization: basic(credentials) } : {} }]
}

const basic = ({ username, password }: { username: string; password: string }): string =>
  `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`
