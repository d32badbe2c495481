import { execFile } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { z } from 'zod'
import { ClusterAccessError } from './errors.ts'
import type { Circumstances, ClusterEntry, Entry, UserEntry } from './kubeconfig-file.ts'
import type { ClusterAccess, TokenSource } from './types.ts'

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'

export interface InClusterOptions {
  /** The values of KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which the kubelet sets in every container. */
  host: string
  port: string
  /** Default `/var/run/secrets/kubernetes.io/serviceaccount`. */
  directory?: string | undefined
  now: () => number
}

/** Returns the access to the API server of the cluster in which this pod runs, as the pod's service account. */
export async function loadInCluster(options: InClusterOptions): Promise<ClusterAccess> {
  const { host, port, directory = SERVICE_ACCOUNT, now } = options
  const read = (name: string): Promise<string> => readMounted(join(directory, name))
  const token = tokenFile(join(directory, 'token'), now)
  const [ca, namespace] = await Promise.all([read('ca.crt'), read('namespace')])
  await token()
  return {
    server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
    ca,
    namespace: namespace.trim(),
    token,
    origin: `the service account in ${directory}`,
  }
}

async function readMounted(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8')
  } catch (cause) {
    throw new ClusterAccessError(
      `${path} cannot be read (${(cause as Error).message}): inside a pod it is mounted unless automountServiceAccountToken is false; outside of one use a kubeconfig`,
      { cause },
    )
  }
}

/**
 * The kubelet renews the token of a pod in its file after 80 % of its lifetime. client-go reads the file once a minute
 * too.
 */
const MAX_AGE_MS = 60_000

/**
 * A token in a file that another process renews. The file is read again when the token is a minute old, or when the
 * server has rejected it.
 */
export function tokenFile(path: string, now: () => number): TokenSource {
  return keptToken(async () => ({ token: await readToken(path), goodUntil: now() + MAX_AGE_MS }), now)
}

async function readToken(path: string): Promise<string> {
  let token: string
  try {
    token = (await readFile(path, 'utf8')).trim()
  } catch (cause) {
    throw new ClusterAccessError(`the token file ${path} cannot be read: ${(cause as Error).message}`, { cause })
  }
  if (token === '') throw new ClusterAccessError(`the token file ${path} is empty`)
  return token
}

export const certificateAuthority = (cluster: Entry<ClusterEntry>): Promise<string | undefined> =>
  pem(cluster, 'certificate-authority')

export async function clientCertificate(
  user: Entry<UserEntry>,
  { origin, now }: Circumstances,
): Promise<{ cert?: string | undefined; key?: string | undefined }> {
  const [cert, key] = await Promise.all([pem(user, 'client-certificate'), pem(user, 'client-key')])
  if ((cert === undefined) !== (key === undefined)) {
    throw new ClusterAccessError(
      `the user of ${origin} needs both client-certificate and client-key; ${cert === undefined ? 'the certificate' : 'the key'} is missing`,
    )
  }
  if (cert !== undefined) refuseExpired(cert, origin, now())
  return { cert, key }
}

/** Returns the PEM text: from the kubeconfig itself, in base64, or else from a file whose path is relative to it. */
async function pem<F extends string>(
  { value, file }: Entry<{ [K in F | `${F}-data`]?: string | undefined }>,
  field: F,
): Promise<string | undefined> {
  const inline = value[`${field}-data`]
  if (inline !== undefined) return ensurePem(Buffer.from(inline, 'base64').toString(), `${field}-data in ${file}`)
  const path = value[field]
  if (path === undefined) return undefined
  const full = resolve(dirname(file), path)
  try {
    return ensurePem(await readFile(full, 'utf8'), full)
  } catch (cause) {
    if (cause instanceof ClusterAccessError) throw cause
    throw new ClusterAccessError(`the ${field} of ${file} cannot be read: ${(cause as Error).message}`, { cause })
  }
}

function ensurePem(text: string, where: string): string {
  if (text.includes('-----BEGIN ')) return text
  throw new ClusterAccessError(`${where} is not a certificate or key: there is no -----BEGIN in it`)
}

function refuseExpired(cert: string, origin: string, now: number): void {
  const { validToDate } = certificate(cert, origin)
  if (validToDate.getTime() > now) return
  throw new ClusterAccessError(
    `the client certificate of ${origin} expired at ${validToDate.toISOString()}; have a new one issued`,
  )
}

function certificate(cert: string, origin: string): X509Certificate {
  try {
    return new X509Certificate(cert)
  } catch (cause) {
    throw new ClusterAccessError(`the client certificate of ${origin} cannot be read: ${(cause as Error).message}`, {
      cause,
    })
  }
}

type Exec = NonNullable<UserEntry['exec']>

const TIMEOUT_MS = 60_000
/** The lifetime of a token that has no expiry time. */
const PLUGIN_TOKEN_MS = 60_000
/** A token is renewed this long before it expires, so that it does not expire while a request is on its way. */
const MARGIN_MS = 10_000

/** `ExecCredential` of client.authentication.k8s.io, v1 and v1beta1. */
const execCredential = z.object({
  status: z.object({
    token: z.string().optional(),
    clientCertificateData: z.string().optional(),
    clientKeyData: z.string().optional(),
    expirationTimestamp: z.iso.datetime({ offset: true }).optional(),
  }),
})

type Credentials = z.output<typeof execCredential>['status']

/**
 * Returns the credentials of a user that come from a program. A token is renewed when it expires, or when the server
 * refuses it. The program is asked for a certificate once.
 */
export async function execCredentials(
  { exec, file }: { exec: Exec; file: string },
  { origin, now }: Circumstances,
): Promise<Pick<ClusterAccess, 'cert' | 'key' | 'token'>> {
  const kept = ({ token, expirationTimestamp: end }: Credentials) => ({
    token,
    goodUntil: end === undefined ? now() + PLUGIN_TOKEN_MS : Date.parse(end) - MARGIN_MS,
  })
  const first = await run(exec, file, origin)
  const ask = async () => kept(await run(exec, file, origin))
  return {
    cert: first.clientCertificateData,
    key: first.clientKeyData,
    token: first.token === undefined ? undefined : keptToken(ask, now, kept(first)),
  }
}

/**
 * Runs the program as kubectl does: a relative path is relative to the kubeconfig's folder. `interactive: false` in its
 * input states that no user can answer a prompt.
 */
async function run(exec: Exec, file: string, origin: string): Promise<Credentials> {
  const { apiVersion, args, env, installHint } = exec
  const command = /[/\\]/.test(exec.command) ? resolve(dirname(file), exec.command) : exec.command
  const info = { apiVersion, kind: 'ExecCredential', spec: { interactive: false } }
  const given = Object.fromEntries((env ?? []).map(({ name, value }) => [name, value]))
  const environment = { ...process.env, ...given, KUBERNETES_EXEC_INFO: JSON.stringify(info) }
  const fail = (why: string, cause?: unknown): never => {
    const hint = installHint === undefined ? '' : `; ${installHint}`
    const who = `the credentials plugin ${exec.command} of ${origin}`
    throw new ClusterAccessError(`${who} gives no credentials: ${why}${hint}`, { cause })
  }
  const printed = await new Promise<string>((done, failed) => {
    const options = { env: environment, timeout: TIMEOUT_MS, maxBuffer: 2 ** 20 }
    const child = execFile(command, args ?? [], options, (error, stdout, stderr) => {
      if (error === null) done(stdout)
      else if (error.killed === true) failed(new Error(`no answer within ${TIMEOUT_MS / 1000} s`))
      else failed(new Error(stderr.trim() || error.message, { cause: error }))
    })
    child.stdin?.end()
  }).catch((error: Error) => fail(error.message, error))
  return credentialsIn(printed) ?? fail('it prints no ExecCredential with a token, or with a certificate and its key')
}

function credentialsIn(printed: string): Credentials | undefined {
  let content: unknown
  try {
    content = JSON.parse(printed)
  } catch {
    return undefined
  }
  const { success, data } = execCredential.safeParse(content)
  if (!success) return undefined
  const { token, clientCertificateData: cert, clientKeyData: key } = data.status
  return token !== undefined || (cert !== undefined && key !== undefined) ? data.status : undefined
}

export interface KeptToken {
  token: string | undefined
  /** The expiry time in epoch milliseconds. */
  goodUntil: number
}

/** Returns a source that asks for a new token when the last one has expired, or when the server has rejected it. */
export function keptToken(ask: () => Promise<KeptToken>, now: () => number, first?: KeptToken): TokenSource {
  let last = first
  return async (rejected) => {
    if (last === undefined || last.token === rejected || now() >= last.goodUntil) last = await ask()
    return last.token
  }
}
