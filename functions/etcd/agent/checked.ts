import { createHash } from 'node:crypto'
import { type Store, whole } from '../stores/index.ts'

/** The length of the SHA-256 of all preceding bytes, which etcd appends. */
const DIGEST_BYTES = 32
/** A database is a whole number of pages, and a page a whole number of sectors. */
const SECTOR_BYTES = 512

/** Known when the stream has ended. */
export interface Checked {
  /** The size in bytes, with the appended digest. */
  size: number
  /** The digest of all bytes, as `sha256sum` of the file shows it. */
  sha256: string
}

/**
 * Passes a snapshot on as it arrives. At its end, throws a SnapshotError unless it is complete: its last 32 bytes must
 * be the SHA-256 of all bytes before. So a consumer that reads to the end has read what etcd sent. Calls `ended` with
 * size and digest.
 */
export async function* checked(
  source: AsyncIterable<Uint8Array>,
  what: string,
  ended: (checked: Checked) => void,
): AsyncGenerator<Uint8Array> {
  const hash = createHash('sha256')
  let size = 0
  let tail: Uint8Array = new Uint8Array()
  for await (const chunk of source) {
    size += chunk.length
    const rest = chunk.length >= DIGEST_BYTES ? chunk : Buffer.concat([tail, chunk])
    if (rest === chunk) hash.update(tail)
    const end = Math.max(0, rest.length - DIGEST_BYTES)
    hash.update(rest.subarray(0, end))
    // Copied, because the memory of the chunk may be used again.
    tail = Uint8Array.from(rest.subarray(end))
    yield chunk
  }
  if (size % SECTOR_BYTES !== DIGEST_BYTES)
    throw new SnapshotError(
      `${what}: ${size} bytes are not a whole snapshot: one ends with a digest of 32 bytes after pages of 512. A database that was copied from a data directory has none: take it with etcdctl snapshot save`,
    )
  const sha256 = hash.copy().update(tail).digest('hex')
  const [found, appended] = [hash.digest('hex'), Buffer.from(tail).toString('hex')]
  if (found !== appended)
    throw new SnapshotError(
      `${what}: the bytes have the SHA-256 ${found}, but the snapshot has ${appended}: it is damaged`,
    )
  ended({ size, sha256 })
}

/**
 * Reads a snapshot from a store to its end. `consume` receives the bytes, and resolves when it has taken all of them.
 */
export const readChecked = (
  store: Store,
  key: string,
  signal: AbortSignal,
  consume: (bytes: AsyncIterable<Uint8Array>) => Promise<void>,
): Promise<Checked> => readToEnd(whole(store, key, signal), store.address(key), consume)

/** Reads a snapshot from any source to its end. */
export async function readToEnd(
  bytes: AsyncIterable<Uint8Array>,
  path: string,
  consume: (bytes: AsyncIterable<Uint8Array>) => Promise<void>,
): Promise<Checked> {
  let found: Checked | undefined
  await consume(checked(bytes, path, (checked) => (found = checked)))
  if (found === undefined) throw new SnapshotError(`${path} was not read to its end`)
  return found
}

/** Thrown for a snapshot that is incomplete, or not the intended one. */
export class SnapshotError extends Error {
  override readonly name = 'SnapshotError'
}
