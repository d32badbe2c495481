import type { EtcdTls } from '#etcd'
import type { Store } from '#stores'
import { type Checked, readChecked, readToEnd } from './checked.ts'
import { blobs, mostAdvanced } from './members.ts'

/** A snapshot that can be read now. */
interface OpenSnapshot extends AsyncDisposable {
  /** Where it comes from. */
  path: string
  /** About, in bytes; undefined: unknown. */
  size: number | undefined
  /** To its end. `consume` is given the bytes, and resolves when it has taken all of them. Throws a SnapshotError. */
  read(consume: (bytes: AsyncIterable<Uint8Array>) => Promise<void>): Promise<Checked>
}

export type SnapshotSource = (signal: AbortSignal) => Promise<OpenSnapshot>

/** One that is stored. */
export const fromStore =
  (store: Store, key: string): SnapshotSource =>
  async (signal) => ({
    path: store.address(key),
    size: (await store.head(key))?.size,
    read: (consume) => readChecked(store, key, signal, consume),
    async [Symbol.asyncDispose]() {},
  })

export interface Members {
  /** URLs. */
  endpoints: readonly string[]
  tls: EtcdTls | undefined
  /** One that has less is not read: another one has been seen that has it. */
  revision: number
  /** Of the whole stream. */
  timeoutMs: number
}

/** That of the member with the highest revision, of those that answer. They need no quorum for it. */
export const fromMembers =
  ({ endpoints, tls, revision, timeoutMs }: Members): SnapshotSource =>
  async (signal) => {
    const { endpoint, etcd, dbSize, ...found } = await mostAdvanced(endpoints, tls, signal)
    if (found.revision < revision) {
      etcd.close()
      throw new Error(
        `${endpoint} has the highest revision of those that answer, ${found.revision}, and ${revision} is wanted: bring back a member that has it`,
      )
    }
    return {
      path: endpoint,
      size: dbSize,
      read: (consume) => readToEnd(blobs(etcd.snapshot({ timeoutMs, signal })), `the snapshot of ${endpoint}`, consume),
      async [Symbol.asyncDispose]() {
        etcd.close()
      },
    }
  }
