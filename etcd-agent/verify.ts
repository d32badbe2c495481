import type { Store } from '#stores'
import { readChecked } from './checked.ts'
import { contentsOf } from './contents.ts'
import { SnapshotError } from './errors.ts'
import type { VerifyReport } from './report.ts'

/**
 * Reads the whole object and compares it with its own digest, then reads its revision from its pages. Stores nothing.
 */
export async function verify(store: Store, key: string, signal: AbortSignal): Promise<VerifyReport> {
  const path = store.address(key)
  const found = await readChecked(store, key, signal, async (bytes) => {
    for await (const _ of bytes) signal.throwIfAborted()
  })
  const [{ revision, clusterVersion }, described] = [
    await contentsOf(async (start, length) => readRange(store, key, { start, length }, signal)),
    await store.head(key),
  ]
  return { path, etcdRevision: revision, etcdVersion: described?.metadata['etcd-version'] ?? clusterVersion, ...found }
}

async function readRange(store: Store, key: string, range: { start: number; length: number }, signal: AbortSignal) {
  const chunks: Uint8Array[] = []
  for await (const chunk of store.get(key, { range, signal })) chunks.push(chunk)
  const bytes = Buffer.concat(chunks)
  if (bytes.length === range.length) return bytes
  throw new SnapshotError(
    `${store.address(key)} has ${bytes.length} of ${range.length} bytes from byte ${range.start} on`,
  )
}
