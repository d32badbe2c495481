import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { UsageError } from '#process/exit'
import { RegistryError } from './blob.ts'
import type { Reference } from './reference.ts'

/** A name and a password, or a token for the registry's token service. */
export type Credentials = { username: string; password: string } | { identityToken: string }

interface DockerConfig {
  auths?: Record<string, { auth?: string; identitytoken?: string }>
  credHelpers?: Record<string, string>
  credsStore?: string
}

/** The names of Docker Hub in files of `docker login`. */
const DOCKER_HUB = ['https://index.docker.io/v1/', 'index.docker.io', 'docker.io']
/** The user name with which a credential helper marks the password as an identity token. */
const TOKEN_USER = '<token>'

/**
 * Returns the credentials of the registry that `docker login` or `podman login` has stored; undefined if there are
 * none.
 */
export async function credentialsFor(
  reference: Pick<Reference, 'registry' | 'repository'>,
  env: NodeJS.ProcessEnv = process.env,
): Promise<Credentials | undefined> {
  const keys = keysOf(reference)
  for (const file of configFiles(env)) {
    const config = await read(file)
    const found = config && (await findIn(config, keys, env))
    if (found) return found
  }
  return undefined
}

/** Returns the configuration files; the first one with credentials counts. */
function configFiles(env: NodeJS.ProcessEnv): string[] {
  const { REGISTRY_AUTH_FILE, DOCKER_CONFIG, XDG_RUNTIME_DIR, HOME = homedir() } = env
  return [
    ...(REGISTRY_AUTH_FILE ? [REGISTRY_AUTH_FILE] : []),
    join(DOCKER_CONFIG || join(HOME, '.docker'), 'config.json'),
    ...(XDG_RUNTIME_DIR ? [join(XDG_RUNTIME_DIR, 'containers/auth.json')] : []),
  ]
}

/** Podman stores credentials of parts of a registry too. The most specific entry counts. */
function keysOf({ registry, repository }: Pick<Reference, 'registry' | 'repository'>): string[] {
  const parts = repository.split('/')
  const nested = parts.map((_, index) => [registry, ...parts.slice(0, parts.length - index)].join('/'))
  const hosts = registry === 'docker.io' ? DOCKER_HUB : [registry]
  return [
    ...nested,
    ...hosts,
    ...hosts.flatMap((host) => [`https://${host}`, `https://${host}/v1/`, `https://${host}/v2/`]),
  ]
}

async function findIn(
  { auths = {}, credHelpers = {}, credsStore }: DockerConfig,
  keys: readonly string[],
  env: NodeJS.ProcessEnv,
): Promise<Credentials | undefined> {
  const key = keys.find((one) => credHelpers[one] !== undefined)
  if (key !== undefined) return fromHelper(credHelpers[key] ?? '', key, env)
  for (const one of keys) {
    const { auth, identitytoken } = auths[one] ?? {}
    if (identitytoken) return { identityToken: identitytoken }
    if (auth) return decoded(auth, one)
  }
  const host = keys.find((one) => auths[one] !== undefined) ?? keys.find((one) => !one.slice(8).includes('/'))
  return credsStore === undefined ? undefined : fromHelper(credsStore, host ?? '', env)
}

function decoded(auth: string, key: string): Credentials {
  const [, username = '', password = ''] = /^([^:]+):(.*)$/s.exec(Buffer.from(auth, 'base64').toString()) ?? []
  if (username === '') throw new UsageError(`the credentials of ${key} cannot be read: log in to it again`)
  return { username, password }
}

/**
 * Runs a credential helper: the server on standard input, JSON on standard output (the protocol of
 * docker-credential-helpers).
 */
async function fromHelper(name: string, server: string, env: NodeJS.ProcessEnv): Promise<Credentials | undefined> {
  const program = `docker-credential-${name}`
  const child = spawn(program, ['get'], { env, stdio: ['pipe', 'pipe', 'inherit'] })
  child.stdin.on('error', () => {})
  child.stdin.end(server)
  const ended = once(child, 'close').catch((cause: unknown) => {
    throw new UsageError(`${program}, which has the credentials of ${server}, cannot be run: put it on the PATH`, {
      cause,
    })
  })
  const [answer, [code]] = await Promise.all([text(child.stdout), ended as Promise<[number]>])
  // The helper reports missing credentials on standard output, with exit code 1.
  if (code !== 0 && /not found/i.test(answer)) return undefined
  if (code !== 0) throw new UsageError(`${program} has failed for ${server}: ${answer.trim() || `exit code ${code}`}`)
  const { Username, Secret } = JSON.parse(answer) as { Username: string; Secret: string }
  return Username === TOKEN_USER ? { identityToken: Secret } : { username: Username, password: Secret }
}

async function read(file: string): Promise<DockerConfig | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as DockerConfig
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw new UsageError(`${file} cannot be read: ${(error as Error).message}`, { cause: error })
  }
}

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
