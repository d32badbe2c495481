import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../../packages/lab/node/command.ts'

/** The folder that the system's tar makes of an archive, in the given one. */
export async function unpackIn(folder: string, archive: Buffer): Promise<string> {
  const target = await mkdtemp(join(folder, 'folder-'))
  await writeFile(join(target, 'a.tar'), archive)
  await mkdir(join(target, 'root'))
  await run('tar', ['-xf', join(target, 'a.tar'), '-C', join(target, 'root'), '--no-same-owner'])
  return join(target, 'root')
}
