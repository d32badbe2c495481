import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { join, posix } from 'node:path'
import type { TarEntry } from './tar.ts'

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
