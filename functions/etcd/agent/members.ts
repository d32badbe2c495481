import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Etcd, type EtcdTls, openEtcd } from '../client/index.ts'

const STATUS_MS = 5000

export interface ChosenMember {
  endpoint: string
  etcd: Etcd
  version: string
  revision: number
  /** The size of its database file, in bytes. */
  dbSize: number
  /** For each member that did not answer, the reason. */
  silent: string[]
}

/**
 * Returns the member with the highest revision among those that answer, because a snapshot of a member that lags behind
 * would be out of date. Members of one cluster with the same revision differ only in data without a revision. If none
 * answers, throws an Error that names each endpoint with the reason. The caller closes the client.
 */
export async function mostAdvanced(
  endpoints: readonly string[],
  tls: EtcdTls | undefined,
  signal: AbortSignal,
): Promise<ChosenMember> {
  const silent: string[] = []
  const asked = await Promise.all(
    endpoints.map(async (endpoint) => {
      const etcd = openEtcd({ url: endpoint, tls })
      try {
        const status = await etcd.call('status', {}, { timeoutMs: STATUS_MS, signal })
        const { version, header, dbSize, raftIndex } = status
        return { endpoint, etcd, version, revision: header.revision, dbSize, raftIndex }
      } catch (error) {
        etcd.close()
        silent.push(`${endpoint}: ${error instanceof Error ? error.message : String(error)}`)
        return undefined
      }
    }),
  )
  signal.throwIfAborted()
  const [best, ...others] = asked
    .filter((answer) => answer !== undefined)
    .sort((one, other) => other.revision - one.revision || other.raftIndex - one.raftIndex)
  for (const { etcd } of others) etcd.close()
  if (best !== undefined) return { ...best, silent }
  const seconds = STATUS_MS / 1000
  throw new Error(
    `no etcd member answers within ${seconds} s: check the endpoints and the certificates: ${silent.join('; ')}`,
  )
}

/** Returns the bytes of a snapshot that a member sends. */
export async function* blobs(pieces: AsyncIterable<{ blob: Buffer }>): AsyncGenerator<Buffer> {
  for await (const { blob } of pieces) yield blob
}

/**
 * Reads TLS files from a folder with the keys of a Secret, which have the same names as in EtcdCluster and EtcdBackup.
 */
export async function readTls(folder: string): Promise<EtcdTls> {
  const read = (name: string) => readKey(folder, name)
  return {
    ca: await read('etcd-client-ca.crt'),
    cert: await read('etcd-client.crt'),
    key: await read('etcd-client.key'),
  }
}

async function readKey(folder: string, name: string): Promise<string> {
  const file = join(folder, name)
  try {
    return await readFile(file, 'utf8')
  } catch (cause) {
    throw new Error(`the Secret of the client of etcd does not exist or has no key ${name} (no file ${file})`, {
      cause,
    })
  }
}
