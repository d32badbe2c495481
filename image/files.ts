import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { join, posix } from 'node:path'
import type { TarEntry } from './tar.ts'

export interface CopyOptions {
  /** Left out: files and folders of these names. */
  without?: (name: string) => boolean
}

/**
 * A file or a folder as entries of a layer. Of the modes only one bit is kept, whether it can be executed: the rest differs
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
