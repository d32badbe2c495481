import { gunzipSync } from 'node:zlib'
import { parseAllDocuments } from 'yaml'
import type { KubeObject, Reconciler } from '#sdk'
import { RELEASE_NAME } from './annotations.ts'

/** What Helm has stored of a release. */
interface StoredRelease {
  version?: number
  manifest?: string
}

const GZIP = Buffer.from([0x1f, 0x8b])

/** Returns what the Secret of a release has: JSON, compressed by gzip, in base64, and in that of the Secret. */
function releaseIn(secret: KubeObject): StoredRelease {
  const { release = '' } = (secret as KubeObject & { data?: Record<string, string> }).data ?? {}
  const stored = Buffer.from(Buffer.from(release, 'base64').toString('latin1'), 'base64')
  const isCompressed = stored.subarray(0, GZIP.length).equals(GZIP)
  try {
    return JSON.parse((isCompressed ? gunzipSync(stored) : stored).toString()) as StoredRelease
  } catch (cause) {
    const { namespace, name } = secret.metadata
    throw new Error(`Secret ${namespace}/${name} has no release that can be read: ${(cause as Error).message}`, {
      cause,
    })
  }
}

/** The operators on Helm that have served the objects before, and what their releases tell of what they have made. */
export const FORMER: NonNullable<Reconciler['succeeds']> = {
  recordsOf: ({ metadata: { name } }) => `owner=helm,status=deployed,name=${name}`,
  made(secrets) {
    const releases = secrets.map(releaseIn).sort(({ version: one = 0 }, { version: other = 0 }) => other - one)
    const documents = parseAllDocuments(releases[0]?.manifest ?? '', { version: '1.1', uniqueKeys: false })
    return documents.flatMap((document) => {
      const { apiVersion, kind, metadata } = (document.toJS() ?? {}) as Partial<KubeObject>
      return apiVersion === undefined || kind === undefined || metadata === undefined
        ? []
        : [{ apiVersion, kind, metadata }]
    })
  },
  wrote: (fields) => {
    const { 'f:metadata': metadata } = fields as { 'f:metadata'?: { 'f:annotations'?: Record<string, unknown> } }
    return metadata?.['f:annotations']?.[`f:${RELEASE_NAME}`] !== undefined
  },
}
