import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { ClusterAccessError } from './errors.ts'
import type { Circumstances, ClusterEntry, Entry, UserEntry } from './kubeconfig-schema.ts'

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
