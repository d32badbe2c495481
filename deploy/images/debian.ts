import { execFile } from 'node:child_process'
import { hash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readdir, readlink, rename, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { ImageFiles } from '#lab'

const run = promisify(execFile)

/** The file that the C library needs to look up host names. */
export const FINDS_HOSTS: ImageFiles = { 'etc/nsswitch.conf': { content: 'hosts: files dns\n' } }

/** Returns the files of these Debian packages as files of an image, without their dependencies. */
export async function debianFiles(packages: readonly string[], cacheDir: string): Promise<ImageFiles> {
  const root = await debianRoot(packages, cacheDir)
  const entries = await readdir(root, { withFileTypes: true })
  const sources = entries.map(async (entry) => {
    const path = join(root, entry.name)
    return [entry.name, entry.isSymbolicLink() ? { link: await readlink(path) } : { from: path }] as const
  })
  return Object.fromEntries(await Promise.all(sources))
}

/**
 * Returns a folder with the files of the packages. It is made once per list of packages, with apt-get and dpkg-deb of
 * this machine. Several processes may call this at the same time.
 */
async function debianRoot(packages: readonly string[], cacheDir: string): Promise<string> {
  const root = join(cacheDir, 'debian', hash('sha256', packages.join(' ')).slice(0, 16))
  if (existsSync(root)) return root
  await mkdir(join(cacheDir, 'debian'), { recursive: true })
  const work = await mkdtemp(join(tmpdir(), 'fl-debian-'))
  try {
    // apt-get downloads as a user of its own, if possible, so the folder must be writable for all users.
    await chmod(work, 0o777)
    await run('apt-get', ['download', '-qq', ...packages], { cwd: work })
    const files = await readdir(work)
    for (const file of files) await run('dpkg-deb', ['--extract', file, 'root'], { cwd: work })
    await rm(join(work, 'root/usr/share/doc'), { recursive: true, force: true })
    const parts = await mkdtemp(join(cacheDir, 'debian', 'part-'))
    await run('cp', ['-a', `${work}/root/.`, parts])
    await rename(parts, root).catch(() => rm(parts, { recursive: true }))
    return root
  } finally {
    await rm(work, { recursive: true, force: true })
  }
}
