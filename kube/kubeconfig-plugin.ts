import type { RequestOptions } from 'node:https'
import { dirname, resolve } from 'node:path'
import { ClusterAccessError } from './errors.ts'
import type { Circumstances, Entry, UserEntry } from './kubeconfig-schema.ts'
import type { ClusterAccess } from './types.ts'

/** The plugin's credentials are looked at again after so long; whether it then runs, their expiry time decides. */
const MAX_AGE_MS = 60_000
const TIMEOUT_MS = 60_000

interface Credentials {
  token: string | undefined
  cert: string | undefined
  key: string | undefined
}

/**
 * Users whose credentials come from a program (exec) or an identity provider (auth-provider, as OIDC), by way of
 * @kubernetes/client-node. Tokens are renewed while they are used; a certificate that a plugin gives is asked for once.
 */
export async function pluginCredentials(
  user: Entry<UserEntry>,
  { origin, now }: Circumstances,
): Promise<Pick<ClusterAccess, 'cert' | 'key' | 'token'>> {
  const ask = await createPlugin(user, origin)
  const first = await ask()
  let last = { token: first.token, readAt: now() }

  const token = async (rejected?: string): Promise<string | undefined> => {
    if (last.token !== rejected && now() - last.readAt < MAX_AGE_MS) return last.token
    const { token } = await ask(rejected !== undefined)
    last = { token, readAt: now() }
    return token
  }
  return { cert: first.cert, key: first.key, token: first.token === undefined ? undefined : token }
}

/** `anew` forgets credentials that the plugin gave before and that have not expired by their own date. */
async function createPlugin(user: Entry<UserEntry>, origin: string): Promise<(anew?: boolean) => Promise<Credentials>> {
  // 0.7 s to import: only where it is needed.
  const { KubeConfig } = await import('@kubernetes/client-node')
  const create = () => {
    const config = new KubeConfig()
    config.loadFromOptions({
      clusters: [{ name: 'cluster', server: 'https://unused.invalid' }],
      users: [{ name: 'user', exec: execOf(user), authProvider: user.value['auth-provider'] ?? undefined }],
      contexts: [{ name: 'context', cluster: 'cluster', user: 'user' }],
      currentContext: 'context',
    })
    return config
  }
  let plugin = create()
  return async (anew = false) => {
    // An identity provider's refresh token changes with use and lives in the old one.
    if (anew && user.value.exec) plugin = create()
    const options: RequestOptions & { headers: Record<string, string> } = { headers: {} }
    try {
      await withinTime(plugin.applyToHTTPSOptions(options))
    } catch (cause) {
      throw new ClusterAccessError(failure(user.value, origin, cause as Error), { cause })
    }
    const token = options.headers['Authorization']?.replace(/^Bearer /, '')
    return { token, cert: text(options.cert), key: text(options.key) }
  }
}

/** As kubectl runs it: a relative path counts from the kubeconfig's folder, and it is told that nobody can be asked. */
function execOf({ value: { exec }, file }: Entry<UserEntry>): object | undefined {
  if (!exec) return undefined
  const command = /[/\\]/.test(exec.command) ? resolve(dirname(file), exec.command) : exec.command
  const info = { apiVersion: exec.apiVersion, kind: 'ExecCredential', spec: { interactive: false } }
  return {
    ...exec,
    command,
    env: [...(exec.env ?? []), { name: 'KUBERNETES_EXEC_INFO', value: JSON.stringify(info) }],
  }
}

function failure({ exec }: UserEntry, origin: string, cause: Error): string {
  const who = exec ? `the credentials plugin ${exec.command}` : 'the identity provider'
  const hint = exec?.installHint === undefined ? '' : `; ${exec.installHint}`
  return `${who} of ${origin} gives no credentials: ${cause.message.trim()}${hint}`
}

function withinTime<T>(work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${TIMEOUT_MS / 1000} s`)), TIMEOUT_MS)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)
