import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AbsStore, GcsStore, parseServiceAccount, readProfile, S3Store, type Store } from '../stores/index.ts'

export type StoreKind = 's3' | 'abs' | 'gcs'

export interface StoreAddress {
  kind: StoreKind
  /** `BUCKET/KEY` */
  path: string
  /** A folder with the keys of the Secret as files. */
  secret: string
  endpoint?: string
  pathStyle?: boolean
}

/**
 * Returns the store and the key that an address names, with the credentials of its Secret. Errors name keys, never
 * values.
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
  const has = (name: string) => optional(secret, name)
  const needs = (name: string) => required(secret, name)
  const connection = { endpoint, ca: await has('ca.crt') }
  switch (kind) {
    case 's3': {
      const profile = readProfile({ credentials: await needs('credentials'), config: await has('config') })
      return { key, store: new S3Store({ ...connection, ...profile, bucket, pathStyle }) }
    }
    case 'abs': {
      const account = { account: await line(needs('storage-account')), key: await line(needs('storage-key')) }
      const cloud = (await has('cloud'))?.trim()
      return { key, store: new AbsStore({ ...connection, ...account, cloud, container: bucket }) }
    }
    case 'gcs': {
      const accessToken = (await has('access-token'))?.trim()
      const credentials =
        accessToken === undefined
          ? { serviceAccount: parseServiceAccount(await needs('credentials.json')) }
          : { accessToken }
      return { key, store: new GcsStore({ ...connection, bucket, credentials }) }
    }
  }
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
