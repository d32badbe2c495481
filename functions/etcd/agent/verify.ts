import type { Store } from '../stores/index.ts'
import { readChecked, SnapshotError } from './checked.ts'
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

/** The contents of a snapshot, as its pages show them. */
interface Contents {
  revision: number
  /** The version of the cluster, such as `3.7.0`; members may run a later patch. Undefined: it was never set. */
  clusterVersion: string | undefined
}

/**
 * Returns the contents of a snapshot after reading about ten pages. Throws a SnapshotError if it is not an etcd
 * database.
 */
async function contentsOf(read: ReadAt): Promise<Contents> {
  const bolt = await Bolt.open(read)
  const [last, version] = [await bolt.lastKey('key'), await bolt.get('cluster', 'clusterVersion')]
  // A cluster without a single write is at revision 1. A key consists of the revision, a separator and a number within
  // it.
  return { revision: last === undefined ? 1 : Number(last.readBigUInt64BE(0)), clusterVersion: version?.toString() }
}

/** Reads `length` bytes of the file from `start` on. */
type ReadAt = (start: number, length: number) => Promise<Buffer>

const HEADER = 16
const ELEMENT = 16
const BRANCH = 1
const MAGIC = 0xed0cdaed
const SMALLEST_PAGE = 4096
const LARGEST_PAGE = 65_536

interface Page {
  isBranch: boolean
  entries: { key: Buffer; value: Buffer; child: number }[]
}

/** Reads a bbolt database page by page, and only the pages that lead to an answer. */
class Bolt {
  readonly #read: ReadAt
  readonly #pageSize: number
  readonly #root: number

  private constructor(read: ReadAt, pageSize: number, root: number) {
    this.#read = read
    this.#pageSize = pageSize
    this.#root = root
  }

  /** Opens the database. The newer one of the two meta pages counts. */
  static async open(read: ReadAt): Promise<Bolt> {
    const start = await read(0, SMALLEST_PAGE)
    const pageSize = start.readUInt32LE(HEADER + 8)
    if (start.readUInt32LE(HEADER) !== MAGIC || pageSize < SMALLEST_PAGE || pageSize > LARGEST_PAGE)
      throw new SnapshotError('it does not begin as a database of etcd does: is it a snapshot?')
    const metas = [start, await read(pageSize, SMALLEST_PAGE)]
    const valid = metas.filter((meta) => meta.readUInt32LE(HEADER) === MAGIC && hasChecksum(meta))
    const [newest] = valid.sort((one, other) => Number(other.readBigUInt64LE(64) - one.readBigUInt64LE(64)))
    if (newest === undefined) throw new SnapshotError('both meta pages of the database are damaged')
    return new Bolt(read, pageSize, Number(newest.readBigUInt64LE(32)))
  }

  /** Returns the value of a key in a bucket of the root. */
  async get(bucket: string, key: string): Promise<Buffer | undefined> {
    const page = await this.#bucket(bucket)
    return page && (await this.#find(page, Buffer.from(key)))
  }

  /** Returns the greatest key of a bucket. */
  async lastKey(bucket: string): Promise<Buffer | undefined> {
    let page = await this.#bucket(bucket)
    while (page?.isBranch === true) page = await this.#page(page.entries.at(-1)?.child ?? 0)
    return page?.entries.at(-1)?.key
  }

  async #bucket(name: string): Promise<Page | undefined> {
    const header = await this.#find(await this.#page(this.#root), Buffer.from(name))
    if (header === undefined) return undefined
    const root = Number(header.readBigUInt64LE(0))
    // A small bucket is stored in the value itself, after its header.
    return root === 0 ? parse(header.subarray(HEADER)) : this.#page(root)
  }

  async #find(start: Page, key: Buffer): Promise<Buffer | undefined> {
    let page = start
    while (page.isBranch) {
      const child = page.entries.findLast((entry) => entry.key.compare(key) <= 0) ?? page.entries[0]
      page = await this.#page(child?.child ?? 0)
    }
    return page.entries.find((entry) => entry.key.equals(key))?.value
  }

  async #page(id: number): Promise<Page> {
    const first = await this.#read(id * this.#pageSize, this.#pageSize)
    const overflow = first.readUInt32LE(12)
    return parse(overflow === 0 ? first : await this.#read(id * this.#pageSize, (overflow + 1) * this.#pageSize))
  }
}

function parse(bytes: Buffer): Page {
  const isBranch = (bytes.readUInt16LE(8) & BRANCH) !== 0
  const count = bytes.readUInt16LE(10)
  const entries = Array.from({ length: count }, (_, index) => {
    const at = HEADER + index * ELEMENT
    const word = (offset: number) => bytes.readUInt32LE(at + offset)
    const [position, keySize, valueSize] = isBranch ? [word(0), word(4), 0] : [word(4), word(8), word(12)]
    const key = bytes.subarray(at + position, at + position + keySize)
    const value = bytes.subarray(at + position + keySize, at + position + keySize + valueSize)
    return { key, value, child: isBranch ? Number(bytes.readBigUInt64LE(at + 8)) : 0 }
  })
  return { isBranch, entries }
}

/** Whether the meta page has the right checksum. bbolt stores the 64-bit FNV-1a of the meta data behind them. */
function hasChecksum(meta: Buffer): boolean {
  let hash = 0xcbf29ce484222325n
  for (const byte of meta.subarray(HEADER, HEADER + 56))
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n)
  return hash === meta.readBigUInt64LE(HEADER + 56)
}
