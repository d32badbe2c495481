import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { installPackage } from '../support/package.ts'

export { PACKED_WITHIN_MS } from '../support/package.ts'

export const ROOT = join(import.meta.dirname, '../..')

/** A folder as an author has it, in which the package is installed as it would be published. */
export async function authorsFolder(): Promise<{ dir: string } & AsyncDisposable> {
  const dir = await mkdtemp(join(tmpdir(), 'fl-author-'))
  await installPackage(dir)
  await writeFile(join(dir, 'package.json'), '{ "name": "my-operator", "type": "module" }')
  return { dir, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) }
}
