import { keptToken } from './credentials.ts'
import { ClusterAccessError } from './errors.ts'
import type { Circumstances, UserEntry } from './kubeconfig-file.ts'
import type { ClusterAccess } from './types.ts'

/** The time after which the provider is asked again. The provider renews the token if its expiry time requires it. */
const MAX_AGE_MS = 60_000
const TIMEOUT_MS = 60_000

export interface ForLibrary {
  /** An identity provider (`auth-provider`, such as OIDC), which gives tokens. */
  authProvider?: UserEntry['auth-provider']
  /** The URL of a SOCKS proxy, whose agent makes the connections to the server. */
  socks?: string | undefined
}

/**
 * Returns the parts of an access that @kubernetes/client-node gives. Imported only for such a kubeconfig: the import
 * takes 0.7 s and 85 MiB. Images do not contain the package.
 */
export async function libraryAccess(
  access: ClusterAccess,
  { authProvider, socks }: ForLibrary,
  { origin, now }: Circumstances,
): Promise<Pick<ClusterAccess, 'token' | 'agent'>> {
  const uses = authProvider ? `the auth-provider ${authProvider.name}` : 'a SOCKS proxy'
  const { KubeConfig } = await import('@kubernetes/client-node').catch((cause: unknown) => {
    const why = cause instanceof Error ? cause.message : String(cause)
    const what = `${origin} uses ${uses}, which needs the package @kubernetes/client-node`
    const way = `images leave it out${authProvider ? '; use a credentials plugin (exec) there' : ''}`
    throw new ClusterAccessError(`${what}: it cannot be loaded (${why}); ${way}`, { cause })
  })
  const { ca, cert, key, insecure = false, serverName } = access
  // One object is kept, because the refresh token of a provider changes with each use.
  const config = new KubeConfig()
  config.loadFromOptions({
    clusters: [
      {
        name: 'cluster',
        // The requests of this client name the server themselves.
        server: 'https://unused.invalid',
        skipTLSVerify: insecure,
        caData: base64(ca),
        tlsServerName: serverName,
        proxyUrl: socks,
      },
    ],
    users: [{ name: 'user', authProvider: authProvider ?? undefined, certData: base64(cert), keyData: base64(key) }],
    contexts: [{ name: 'context', cluster: 'cluster', user: 'user' }],
    currentContext: 'context',
  })
  const apply = async () => {
    const options: { headers: Record<string, string>; agent?: ClusterAccess['agent'] } = { headers: {} }
    try {
      await withinTime(config.applyToHTTPSOptions(options))
    } catch (cause) {
      const why = (cause as Error).message.trim()
      throw new ClusterAccessError(`${uses} of ${origin} gives no credentials: ${why}`, { cause })
    }
    return { agent: options.agent, token: options.headers['Authorization']?.replace(/^Bearer /, '') }
  }
  const ask = async () => ({ token: (await apply()).token, goodUntil: now() + MAX_AGE_MS })
  const { agent, token } = await apply()
  return {
    token: token === undefined ? undefined : keptToken(ask, now, { token, goodUntil: now() + MAX_AGE_MS }),
    agent: socks === undefined ? undefined : agent,
  }
}

const base64 = (text: string | undefined): string | undefined => text && Buffer.from(text).toString('base64')

function withinTime<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${TIMEOUT_MS / 1000} s`)), TIMEOUT_MS)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
