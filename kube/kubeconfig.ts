import { delimiter, dirname, join, resolve } from 'node:path'
import { certificateAuthority, clientCertificate, execCredentials, tokenFile } from './credentials.ts'
import { ClusterAccessError } from './errors.ts'
import type { Circumstances, ClusterEntry, Entry, KubeConfig, UserEntry } from './kubeconfig-file.ts'
import { type KubeConfigFile, kubeConfigIn, readKubeConfigs } from './kubeconfig-file.ts'
import { libraryAccess } from './kubeconfig-library.ts'
import type { ClusterAccess, TokenSource } from './types.ts'

/** Returns the files that the value of KUBECONFIG names, or the file in the home folder if the variable is not set. */
export function kubeConfigPaths(list: string | undefined, home: string): string[] {
  const paths = (list ?? '').split(delimiter).filter((path) => path !== '')
  return paths.length > 0 ? paths : [join(home, '.kube', 'config')]
}

export interface KubeConfigOptions {
  /** If several files define the same entry, the first file counts (as in kubectl). */
  paths: string[]
  /** Default: the current context. */
  context?: string | undefined
  now?: (() => number) | undefined
}

/**
 * Returns the access that a kubeconfig describes. Certificates are read once. Tokens from files and plugins are renewed
 * while they are used.
 */
export const loadKubeConfig = async ({ paths, ...chosen }: KubeConfigOptions): Promise<ClusterAccess> =>
  accessIn(await readKubeConfigs(paths), chosen)

/** A kubeconfig that others than the operator of this process have written, as that of an inventory of clusters. */
export interface ForeignKubeConfig {
  text: string
  /** Where it comes from, for messages. */
  from: string
}

/** Everything else of the process waits while a text is parsed. A kubeconfig of one cluster has 3 to 20 KiB. */
const MOST_FOREIGN_CHARS = 64 * 1024

/** What each was the last time. They are read every few seconds, also those that are not valid. */
const parsed = new WeakMap<ForeignKubeConfig, { text: string; file: Promise<KubeConfigFile> }>()

/** Returns the access that it describes. Throws if it would run a program, or read a file of this process. */
export async function loadForeignKubeConfig(foreign: ForeignKubeConfig): Promise<ClusterAccess> {
  const { text, from } = foreign
  if (text.length > MOST_FOREIGN_CHARS) {
    throw new ClusterAccessError(
      `${from} has ${text.length} characters, and a kubeconfig of an inventory has at most ${MOST_FOREIGN_CHARS}; leave out all but one context`,
    )
  }
  const before = parsed.get(foreign)
  const file = before?.text === text ? before.file : kubeConfigIn(text, from)
  parsed.set(foreign, { text, file })
  return accessIn([await file], { isForeign: true })
}

async function accessIn(
  files: KubeConfigFile[],
  { context, now = Date.now, isForeign = false }: Omit<KubeConfigOptions, 'paths'> & { isForeign?: boolean },
): Promise<ClusterAccess> {
  const name = context ?? currentContext(files)
  const chosen = named(files, 'context', name, ({ contexts }) => contexts?.map((c) => [c.name, c.context]))
  const { cluster: clusterName, user: userName, namespace } = chosen.value
  if (clusterName === undefined) {
    throw new ClusterAccessError(`context ${name} of ${chosen.file} names no cluster`)
  }
  const cluster = named(files, 'cluster', clusterName, ({ clusters }) => clusters?.map((c) => [c.name, c.cluster]))
  const user =
    userName === undefined
      ? undefined
      : named(files, 'user', userName, ({ users }) => users?.map((u) => [u.name, u.user]))
  const origin = `context ${name} of ${chosen.file}`
  const circumstances = { origin, now }
  if (isForeign) refuseReach(user === undefined ? [cluster] : [cluster, user], origin)
  const access: ClusterAccess = {
    ...(await serverOf(clusterName, cluster)),
    ...(user === undefined ? {} : await credentialsOf(user, circumstances)),
    namespace,
    origin,
  }
  const authProvider = user?.value.exec ? undefined : user?.value['auth-provider']
  const socks = access.proxy?.startsWith('socks') === true ? access.proxy : undefined
  if (!authProvider && socks === undefined) return access
  const { token = access.token, agent } = await libraryAccess(access, { authProvider, socks }, circumstances)
  return { ...access, token, agent }
}

function currentContext(files: KubeConfigFile[]): string {
  const current = files.map(({ config }) => config['current-context']).find((name) => name !== undefined)
  if (current !== undefined) return current
  throw new ClusterAccessError(
    `${pathsOf(files)} has no current-context; name a context, or choose one with kubectl config use-context`,
  )
}

function named<T>(
  files: KubeConfigFile[],
  what: string,
  name: string,
  entriesOf: (config: KubeConfig) => [string, T][] | undefined,
): Entry<T> {
  const all = files.flatMap(({ path, config }) =>
    (entriesOf(config) ?? []).map(([key, value]) => ({ key, value, file: path })),
  )
  const found = all.find(({ key }) => key === name)
  if (found !== undefined) return found
  const known = all.map(({ key }) => key).join(', ')
  throw new ClusterAccessError(`${pathsOf(files)} has no ${what} ${name}; it has ${known === '' ? 'none' : known}`)
}

async function serverOf(name: string, entry: Entry<ClusterEntry>): Promise<ClusterAccess> {
  const { value, file } = entry
  if (value.server === undefined) throw new ClusterAccessError(`cluster ${name} of ${file} has no server`)
  const proxy = value['proxy-url']
  if (proxy !== undefined && !PROXIES.has(URL.parse(proxy)?.protocol ?? '')) {
    throw new ClusterAccessError(
      `the proxy-url of cluster ${name} of ${file} is not the URL of a proxy: it begins with http://, https:// or socks5://`,
    )
  }
  return {
    server: value.server,
    serverName: value['tls-server-name'],
    insecure: value['insecure-skip-tls-verify'] ?? false,
    ca: await certificateAuthority(entry),
    proxy,
  }
}

const PROXIES = new Set(['http:', 'https:', 'socks:', 'socks4:', 'socks4a:', 'socks5:', 'socks5h:'])

async function credentialsOf(
  user: Entry<UserEntry>,
  circumstances: Circumstances,
): Promise<Pick<ClusterAccess, 'cert' | 'key' | 'token' | 'headers'>> {
  refuseUnsupported(user.value, circumstances.origin)
  const headers = impersonation(user.value, circumstances.origin)
  const { exec, 'auth-provider': provider } = user.value
  if (exec) return { ...(await execCredentials({ exec, file: user.file }, circumstances)), headers }
  if (provider) return { headers }
  return { ...(await clientCertificate(user, circumstances)), token: userToken(user, circumstances), headers }
}

/** Returns the headers of a user who acts as another one, in the names of client-go. */
function impersonation(user: UserEntry, origin: string): ClusterAccess['headers'] {
  const { as, 'as-groups': groups, 'as-uid': uid } = user
  if (as === undefined) {
    if (!groups?.length && uid === undefined) return undefined
    throw new ClusterAccessError(`the user of ${origin} impersonates groups or a uid without a user: set as too`)
  }
  return {
    'impersonate-user': as,
    ...(groups?.length ? { 'impersonate-group': groups } : {}),
    ...(uid === undefined ? {} : { 'impersonate-uid': uid }),
  }
}

/** tokenFile takes precedence over token, as in client-go. */
function userToken({ value, file }: Entry<UserEntry>, { now }: Circumstances): TokenSource | undefined {
  const { token, tokenFile: path } = value
  if (path !== undefined) return tokenFile(resolve(dirname(file), path), now)
  return token === undefined ? undefined : () => Promise.resolve(token)
}

const FILES = ['certificate-authority', 'client-certificate', 'client-key', 'tokenFile'] as const

/** Refuses what would run as this process, or would send a file of it, such as its own token, to the server. */
function refuseReach(entries: readonly Entry<Partial<ClusterEntry & UserEntry>>[], origin: string): void {
  for (const { value, file } of entries) {
    const program = value.exec ? 'exec' : value['auth-provider'] ? 'auth-provider' : undefined
    if (program !== undefined) {
      throw new ClusterAccessError(
        `the user of ${origin} has ${program}, which runs a program, and the operator of this process has not written it; use a token or certificate`,
      )
    }
    const named = FILES.find((field) => value[field] !== undefined)
    if (named !== undefined) {
      throw new ClusterAccessError(
        `the ${named} of ${file} is ${value[named]}, a file of this process, and its operator has not written that; put the content into the kubeconfig`,
      )
    }
  }
}

function refuseUnsupported({ username, 'as-user-extra': extra }: UserEntry, origin: string): void {
  if (extra) throw new ClusterAccessError(`the user of ${origin} has as-user-extra, which is not supported: remove it`)
  if (username !== undefined) {
    throw new ClusterAccessError(
      `the user of ${origin} has a user name and password, which API servers stopped to accept in Kubernetes 1.19; use a token or certificate`,
    )
  }
}

const pathsOf = (files: KubeConfigFile[]): string => files.map(({ path }) => path).join(', ')
