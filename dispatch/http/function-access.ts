import { readFile } from 'node:fs/promises'
import { FunctionError } from '#reconcile'

/** The access to the server of a function. Files are read again when they are ten seconds old. */
export interface FunctionAccess {
  /** Scheme, host and port, as in `https://shops.example.com:8443`. Other servers do not receive the credentials. */
  origin: string
  /** The reconcilers whose calls use this access. Left out: all. */
  reconcilers?: readonly string[] | undefined
  /** A file with certificate authorities in PEM. They replace the authorities of the system. */
  caFile?: string | undefined
  /** A file with a bearer token. */
  tokenFile?: string | undefined
  /** A file with the client certificate of the dispatcher, PEM. */
  certFile?: string | undefined
  keyFile?: string | undefined
}

/** The credentials for a request. */
export interface Credentials {
  headers: { authorization?: string }
  tls: { ca?: string; cert?: string; key?: string }
}

const MAX_AGE_MS = 10_000
const NONE: Credentials = { headers: {}, tls: {} }

export const accessTo = (
  all: readonly FunctionAccess[],
  url: string,
  reconciler: string,
): FunctionAccess | undefined => {
  const { origin } = new URL(url)
  return all.find((one) => one.origin === origin && (one.reconcilers?.includes(reconciler) ?? true))
}

/**
 * Returns a function that reads the credentials. It rejects with a FunctionError that names the file; the function is
 * then not called.
 */
export function credentialsOf(access: FunctionAccess | undefined): () => Promise<Credentials> {
  if (access === undefined) return async () => NONE
  let last: { credentials: Promise<Credentials>; readAt: number } | undefined
  return () => {
    const now = performance.now()
    if (last === undefined || now - last.readAt >= MAX_AGE_MS) last = { credentials: read(access), readAt: now }
    const { credentials } = last
    return credentials.catch((error: unknown) => {
      if (last?.credentials === credentials) last = undefined
      throw error
    })
  }
}

async function read({ caFile, tokenFile, certFile, keyFile }: FunctionAccess): Promise<Credentials> {
  const [ca, token, cert, key] = await Promise.all([caFile, tokenFile, certFile, keyFile].map(contentOf))
  return {
    headers: { ...(token !== undefined && { authorization: `Bearer ${token}` }) },
    tls: { ...(ca !== undefined && { ca }), ...(cert !== undefined && { cert }), ...(key !== undefined && { key }) },
  }
}

async function contentOf(file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined
  const content = await readFile(file, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    const message = `the function is not called: its credentials in ${file} cannot be read (${cause.code ?? cause.name})`
    throw new FunctionError(message, { isAway: true, cause })
  })
  if (content.trim() === '')
    throw new FunctionError(`the function is not called: its credentials file ${file} is empty`, { isAway: true })
  return content.trim()
}
