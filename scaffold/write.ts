import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { NameError } from './names.ts'
import type { Files } from './project.ts'

/** Writes a project into a folder that does not exist, or contains only .git. */
export async function writeProject(folder: string, files: Files): Promise<void> {
  const found = (await namesIn(folder)).filter((name) => name !== '.git')
  if (found.length > 0)
    throw new NameError(`${folder} is not empty (${found.slice(0, 3).join(', ')} …): give the name of a new folder`)
  await write(folder, files)
}

/** Adds the files of a kind to a project, and exports its function. Writes nothing if one of the files exists. */
export async function addKind(folder: string, files: Files, singular: string): Promise<string[]> {
  const index = join(folder, 'src/index.ts')
  const exported = await readFile(index, 'utf8').catch(() => undefined)
  if (exported === undefined)
    throw new NameError(
      `${folder} has no src/index.ts: run this in the folder of a project, or make one: fairlead new my-operator`,
    )
  for (const path of files.keys())
    if ((await namesIn(dirname(join(folder, path)))).includes(path.split('/').at(-1) ?? ''))
      throw new NameError(`${path} is there already: choose another kind, or remove it`)
  await write(folder, files)
  const line = `export { ${singular} } from './${singular}.ts'\n`
  await writeFile(index, exported.endsWith('\n') || exported === '' ? `${exported}${line}` : `${exported}\n${line}`)
  return [...files.keys(), 'src/index.ts']
}

async function write(folder: string, files: Files): Promise<void> {
  for (const [path, text] of files) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), text)
  }
}

const namesIn = (folder: string): Promise<string[]> =>
  readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw new NameError(`${folder} cannot be used: ${error.message}`)
  })
