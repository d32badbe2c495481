import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openAbs, openGcs, openS3, parseServiceAccount, readProfile, type Store } from '../stores/index.ts'

export type StoreKind = 's3' | 'abs' | 'gcs'

export interface StoreAddress {
  kind: StoreKind
  /** `BUCKET/KEY` */
  path: string
  /** A folder with the keys of the Secret as files. Undefined: the identity of the process opens the store. */
  secret?: string
  endpoint?: string
  pathStyle?: boolean
}

/**
 * Returns the store and the key that an address names, with the credentials of its Secret, and with the identity of the
 * process if it names none. A Secret that is named and missing is an error. Errors name keys, never values.
 */
export async function openStore({
  kind,
  path,
  secret,
  endpoint,
  pathStyle,
}: StoreAddress): Promise<{ store: Store; key: string }> {
  const [, bucket, key] = /^\/?([^/]+)\/(.+)$/.exec(path) ?? []
  if (bucket === undefined || key === undefined)
    throw new Error(`the path is ${JSON.stringify(path)}: give BUCKET/KEY, such as backups/etcd/snapshot.db`)
  if (endpoint !== undefined && !/^https?:$/.test(protocolOf(endpoint)))
    throw new Error(`the endpoint is ${JSON.stringify(endpoint)}: give a URL such as https://s3.example.com`)
  if (secret === undefined) return { key, store: await withIdentity(kind, bucket, endpoint, pathStyle) }
  const has = (name: string) => optional(secret, name)
  const needs = (name: string) => required(secret, name)
  const connection = { endpoint, ca: await has('ca.crt') }
  switch (kind) {
    case 's3': {
      const profile = readProfile({ credentials: await needs('credentials'), config: await has('config') })
      return { key, store: await openS3({ ...connection, ...profile, bucket, pathStyle }) }
    }
    case 'abs': {
      const credentials = { account: await line(needs('storage-account')), key: await line(needs('storage-key')) }
      const cloud = (await has('cloud'))?.trim()
      return { key, store: await openAbs({ ...connection, credentials, cloud, container: bucket }) }
    }
    case 'gcs': {
      const accessToken = (await has('access-token'))?.trim()
      const credentials =
        accessToken === undefined
          ? { serviceAccount: parseServiceAccount(await needs('credentials.json')) }
          : { accessToken }
      return { key, store: await openGcs({ ...connection, bucket, credentials }) }
    }
  }
}

/** The hosts of a provider. A token of the process goes to no others, because whoever has it may use it. */
const HOSTS_OF_TOKENS = {
  abs: /\.(core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net|cloudapi\.de)|storage\.azure\.net)$/,
  gcs: /\.googleapis\.com$/,
}

/** Opens a store with the identity of the process. A request to S3 has a signature for its host, and no token to use. */
function withIdentity(kind: StoreKind, bucket: string, endpoint: string | undefined, pathStyle?: boolean) {
  if (kind === 's3') return openS3({ endpoint, bucket, pathStyle })
  if (endpoint === undefined) {
    if (kind === 'gcs') return openGcs({ bucket })
    throw new Error(
      'the store is abs and has neither a Secret nor an endpoint: name the account by the endpoint https://ACCOUNT.blob.core.windows.net',
    )
  }
  const { protocol, hostname } = new URL(endpoint)
  if (protocol !== 'https:' || !HOSTS_OF_TOKENS[kind].test(hostname))
    throw new Error(
      `the endpoint is ${JSON.stringify(endpoint)}, and without a Secret the identity of the pod would give it a token: name a Secret, or an https endpoint of the provider`,
    )
  return kind === 'abs' ? openAbs({ endpoint, container: bucket }) : openGcs({ endpoint, bucket })
}

const line = async (text: Promise<string>): Promise<string> => (await text).trim()

function protocolOf(url: string): string {
  return URL.canParse(url) ? new URL(url).protocol : ''
}

async function optional(folder: string, name: string): Promise<string | undefined> {
  try {
    return await readFile(join(folder, name), 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

async function required(folder: string, name: string): Promise<string> {
  const text = await optional(folder, name)
  if (text !== undefined) return text
  throw new Error(`the Secret of the store does not exist or has no key ${name} (no file ${join(folder, name)})`)
}
