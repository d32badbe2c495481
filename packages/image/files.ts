import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { join, posix } from 'node:path'
import type { ReadableStream } from 'node:stream/web'
import { gzipSync } from 'fflate'
import { createTarPacker, type TarHeader } from 'modern-tar'
import { type Blob, blob, digestOf, MEDIA } from './blob.ts'

/** An entry of a tar archive. `path` is relative, without a slash at either end. */
export type TarEntry =
  | { type: 'file'; path: string; mode: number; content: Uint8Array }
  | { type: 'directory'; path: string; mode: number }
  | { type: 'link'; path: string; target: string }

const EPOCH = new Date(0)

function headerOf(entry: TarEntry): TarHeader {
  const common = { size: 0, mtime: EPOCH }
  if (entry.type === 'link')
    return { ...common, type: 'symlink', name: entry.path, linkname: entry.target, mode: 0o777 }
  if (entry.type === 'directory') return { ...common, type: 'directory', name: `${entry.path}/`, mode: entry.mode }
  return { ...common, name: entry.path, mode: entry.mode, size: entry.content.length }
}

/** Packs entries as they come. The owner is root and all times are 0: the same entries give the same bytes. */
export function tarStream(
  entries: Iterable<TarEntry> | AsyncIterable<TarEntry>,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const { readable, controller } = createTarPacker()
  const pack = async (): Promise<void> => {
    for await (const entry of entries) {
      const writer = controller.add(headerOf(entry)).getWriter()
      if (entry.type === 'file') await writer.write(entry.content)
      await writer.close()
    }
    controller.finalize()
  }
  pack().catch((error: unknown) => controller.error(error))
  return readable
}

export const tar = async (entries: readonly TarEntry[]): Promise<Buffer<ArrayBuffer>> =>
  Buffer.concat(await Array.fromAsync(tarStream(entries)))

/** Whether a path below the copied folder is copied. */
type Keep = (path: string, isFolder: boolean) => Promise<boolean>

/**
 * Returns a file or a folder as entries of a layer. Keeps only the executable bit of modes: the other bits differ
 * between machines. A folder of which `keep` leaves nothing is left out too.
 */
export async function entriesFrom(from: string, path: string, keep?: Keep, below = ''): Promise<TarEntry[]> {
  const status = await stat(from)
  if (!status.isDirectory()) {
    return [{ type: 'file', path, mode: status.mode & 0o100 ? 0o755 : 0o644, content: await readFile(from) }]
  }
  const children = await readdir(from, { withFileTypes: true })
  const entries: TarEntry[] = [{ type: 'directory', path, mode: 0o755 }]
  for (const child of children) {
    const at = posix.join(below, child.name)
    if (keep !== undefined && !(await keep(at, child.isDirectory()))) continue
    const [source, target] = [join(from, child.name), posix.join(path, child.name)]
    if (child.isSymbolicLink()) entries.push({ type: 'link', path: target, target: await readlink(source) })
    else entries.push(...(await entriesFrom(source, target, keep, at)))
  }
  return entries.length === 1 && children.length > 0 ? [] : entries
}

/** A compressed layer, and the digest of its uncompressed contents. */
export interface Layer {
  blob: Blob
  diffId: string
  /** The origin of the layer, for `docker history`. */
  createdBy: string
}

/**
 * Makes a layer. The same entries give the same bytes on every machine: they are sorted, without times and owners, and
 * compressed by JavaScript, since zlib's output depends on the processor.
 */
export async function layerOf(entries: readonly TarEntry[], createdBy: string): Promise<Layer> {
  const archive = await tar(withDirectories(entries))
  const bytes = Buffer.from(gzipSync(archive, { level: 6, mtime: 0 }))
  return { blob: blob(MEDIA.gzipLayer, bytes), diffId: digestOf(archive), createdBy }
}

/** Sorts the entries by path, each one after its parent folders. */
function withDirectories(entries: readonly TarEntry[]): TarEntry[] {
  const byPath = new Map<string, TarEntry>()
  for (const { path } of entries)
    for (const folder of ancestors(path)) byPath.set(folder, { type: 'directory', path: folder, mode: 0o755 })
  for (const entry of entries) byPath.set(entry.path, entry)
  return [...byPath.values()].sort((a, b) => (a.path < b.path ? -1 : 1))
}

export function ancestors(path: string): string[] {
  const parent = posix.dirname(path)
  return parent === '.' ? [] : [...ancestors(parent), parent]
}
