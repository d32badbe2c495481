import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { cacheDir } from '../../packages/lab/build.ts'
import { BIN, type Finished, fairlead, startFairlead } from '../support/fairlead.ts'
import { madeOnce } from '../support/made-once.ts'
import { npmInstall } from '../support/package.ts'

const KEPT = join(import.meta.dirname, 'previous')

type Environment = Record<string, string>

export interface Release {
  version: string
  run(args: string[], env: Environment): Promise<Finished>
  start(args: string[], env: Environment): ReturnType<typeof startFairlead>
}

const releaseOf = (version: string, bin: string): Release => ({
  version,
  run: (args, env) => fairlead(args, env, bin),
  start: (args, env) => startFairlead(args, env, bin),
})

/** These sources. */
export const TREE = releaseOf('the tree', BIN)

/** What was released before these sources, installed from its tarball by npm. `release/` keeps the tarball, without types. */
export async function previousRelease(): Promise<Release> {
  const [name = ''] = await readdir(KEPT)
  const tarball = join(KEPT, name)
  const digest = createHash('sha256')
    .update(await readFile(tarball))
    .digest('hex')
    .slice(0, 12)
  const dir = join(cacheDir(), 'previous', digest)
  const bin = join(dir, 'node_modules/fairlead/cli/bin.js')
  await madeOnce(dir, bin, () => npmInstall(dir, [tarball]))
  return releaseOf(/-(\d+\.\d+\.\d+)\.tgz$/.exec(name)?.[1] ?? name, bin)
}
