import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { join, posix } from 'node:path'
import type { TarEntry } from './tar.ts'

export interface CopyOptions {
  /** Files and folders with these names are left out. */
  without?: (name: string) => boolean
}

/**
 * Returns a file or a folder as entries of a layer. Keeps only the executable bit of modes: the other bits differ
 * between machines.
 */
export async function entriesFrom(from: string, path: string, options: CopyOptions = {}): Promise<TarEntry[]> {
  const status = await stat(from)
  if (!status.isDirectory()) {
    return [{ type: 'file', path, mode: status.mode & 0o100 ? 0o755 : 0o644, content: await readFile(from) }]
  }
  const children = await readdir(from, { withFileTypes: true })
  const kept = children.filter(({ name }) => options.without?.(name) !== true)
  const entries: TarEntry[] = [{ type: 'directory', path, mode: 0o755 }]
  for (const child of kept) {
    const [source, target] = [join(from, child.name), posix.join(path, child.name)]
    if (child.isSymbolicLink()) entries.push({ type: 'link', path: target, target: await readlink(source) })
    else entries.push(...(await entriesFrom(source, target, options)))
  }
  return entries
}
