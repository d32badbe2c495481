import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export const ROOT = join(import.meta.dirname, '../..')

/** A folder as an author has it: what npm makes of `npm install ../fairlead`, without asking a registry. */
export async function authorsFolder(): Promise<{ dir: string } & AsyncDisposable> {
  const dir = await mkdtemp(join(tmpdir(), 'fl-author-'))
  await mkdir(join(dir, 'node_modules/.bin'), { recursive: true })
  await symlink(ROOT, join(dir, 'node_modules/fairlead'))
  await symlink('../fairlead/cli/bin.js', join(dir, 'node_modules/.bin/fairlead'))
  await writeFile(join(dir, 'package.json'), '{ "name": "my-operator", "type": "module" }')
  return { dir, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) }
}
