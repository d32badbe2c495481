import { cp, mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { emptied } from './folder.ts'
import type { Manifest } from './manifest.ts'

/** Builds the package of `npm create fairlead` from the files of a built package. It contains only the scaffolder. */
export async function buildCreatePackage(
  from: string,
  { version, license, engines }: Manifest,
  folder: string,
): Promise<void> {
  await mkdir(join(await emptied(folder), 'scaffold'))
  for (const name of await readdir(join(from, 'scaffold')))
    if (!/\.(map|d\.ts)$/.test(name))
      await cp(join(from, 'scaffold', name), join(folder, 'scaffold', name), { recursive: true })
  await cp(join(from, 'LICENSE'), join(folder, 'LICENSE'))
  await writeFile(join(folder, 'create.js'), "#!/usr/bin/env node\nawait import('./scaffold/create-main.js')\n", {
    mode: 0o755,
  })
  const manifest = {
    name: 'create-fairlead',
    version,
    description: 'npm create fairlead: a project for Kubernetes operators made of functions',
    license,
    type: 'module',
    engines,
    bin: { 'create-fairlead': 'create.js' },
  }
  await writeFile(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
}
