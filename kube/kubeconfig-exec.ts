import { execFile } from 'node:child_process'
import { dirname, resolve } from 'node:path'
import { z } from 'zod'
import { ClusterAccessError } from './errors.ts'
import { keptToken } from './kept-token.ts'
import type { Circumstances, UserEntry } from './kubeconfig-schema.ts'
import type { ClusterAccess } from './types.ts'

type Exec = NonNullable<UserEntry['exec']>

const TIMEOUT_MS = 60_000
/** The lifetime of a token that has no expiry time. */
const MAX_AGE_MS = 60_000
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
    goodUntil: end === undefined ? now() + MAX_AGE_MS : Date.parse(end) - MARGIN_MS,
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
