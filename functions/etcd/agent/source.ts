import type { EtcdTls } from '../client/index.ts'
import type { Store } from '../stores/index.ts'
import { type Checked, readChecked, readToEnd } from './checked.ts'
import { blobs, mostAdvanced } from './members.ts'

/** A snapshot that can be read now. */
interface OpenSnapshot extends AsyncDisposable {
  /** The origin of the snapshot. */
  path: string
  /** The approximate size in bytes. Undefined: unknown. */
  size: number | undefined
  /**
   * Reads the snapshot to its end. `consume` receives the bytes, and resolves when it has taken all of them. Throws a
   * SnapshotError.
   */
  read(consume: (bytes: AsyncIterable<Uint8Array>) => Promise<void>): Promise<Checked>
}

export type SnapshotSource = (signal: AbortSignal) => Promise<OpenSnapshot>

/** Returns a source that reads a stored snapshot. */
export const fromStore =
  (store: Store, key: string): SnapshotSource =>
  async (signal) => ({
    path: store.address(key),
    size: (await store.head(key))?.size,
    read: (consume) => readChecked(store, key, signal, consume),
    async [Symbol.asyncDispose]() {},
  })

export interface Members {
  /** The URLs of members. */
  endpoints: readonly string[]
  tls: EtcdTls | undefined
  /** The lowest revision to accept. Another member is known to have it, so a member with less is not read. */
  revision: number
  /** The time-out of the whole stream, in milliseconds. */
  timeoutMs: number
}

/**
 * Returns a source that reads a snapshot of the member with the highest revision among those that answer. This needs no
 * quorum.
 */
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
