import { keptToken } from './credentials.ts'
import { ClusterAccessError } from './errors.ts'
import type { Circumstances, UserEntry } from './kubeconfig-file.ts'
import type { ClusterAccess } from './types.ts'

type AuthProvider = NonNullable<UserEntry['auth-provider']>

/** The time after which the provider is asked again. The provider renews the token if its expiry time requires it. */
const MAX_AGE_MS = 60_000
const TIMEOUT_MS = 60_000

/**
 * Returns the credentials of a user whose token comes from an identity provider (`auth-provider`, such as OIDC). Uses
 * @kubernetes/client-node, which is installed only if it is needed. Tokens are renewed while they are used.
 */
export async function providerCredentials(
  provider: AuthProvider,
  { origin, now }: Circumstances,
): Promise<Pick<ClusterAccess, 'token'>> {
  const tokenOf = await createProvider(provider, origin)
  const ask = async () => ({ token: await tokenOf(), goodUntil: now() + MAX_AGE_MS })
  const first = await ask()
  return { token: first.token === undefined ? undefined : keptToken(ask, now, first) }
}

/** One object is kept, because the refresh token of a provider changes with each use. */
async function createProvider(authProvider: AuthProvider, origin: string): Promise<() => Promise<string | undefined>> {
  const { KubeConfig } = await import('@kubernetes/client-node').catch((cause: unknown) => {
    const what = `${origin} uses the auth-provider ${authProvider.name}, which needs the package @kubernetes/client-node`
    throw new ClusterAccessError(`${what}: ${whyNotLoaded(cause)}, or use a credentials plugin (exec)`, { cause })
  })
  const config = new KubeConfig()
  config.loadFromOptions({
    clusters: [{ name: 'cluster', server: 'https://unused.invalid' }],
    users: [{ name: 'user', authProvider }],
    contexts: [{ name: 'context', cluster: 'cluster', user: 'user' }],
    currentContext: 'context',
  })
  return async () => {
    const options: { headers: Record<string, string> } = { headers: {} }
    try {
      await withinTime(config.applyToHTTPSOptions(options))
    } catch (cause) {
      const why = (cause as Error).message.trim()
      throw new ClusterAccessError(`the identity provider of ${origin} gives no credentials: ${why}`, { cause })
    }
    return options.headers['Authorization']?.replace(/^Bearer /, '')
  }
}

/** The package is not installed only if Node.js finds no package of this name. It may also lack one of its own. */
function whyNotLoaded(cause: unknown): string {
  const message = cause instanceof Error ? cause.message : String(cause)
  const isNotFound = (cause as NodeJS.ErrnoException | undefined)?.code === 'ERR_MODULE_NOT_FOUND'
  const isMissing = isNotFound && message.includes("package '@kubernetes/client-node'")
  return isMissing
    ? 'install it beside fairlead (npm install @kubernetes/client-node)'
    : `it cannot be loaded (${message}): correct its installation`
}

function withinTime<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${TIMEOUT_MS / 1000} s`)), TIMEOUT_MS)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
