import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { basename, dirname, join, relative } from 'node:path'
import { parse } from 'yaml'

const MANIFEST = 'manifest.yaml'
/** Directories that pkg/functions/repository.go does not read as runtimes. */
const NO_RUNTIME = ['certs']
const NO_TEMPLATE = ['scaffolding']

interface Config {
  invoke?: string
  healthEndpoints?: { liveness?: string; readiness?: string }
  [key: string]: unknown
}

export interface FuncTemplate {
  runtime: string
  name: string
  folder: string
  /** Settings of the repository, overridden by those of the runtime, then by those of the template. */
  config: Config
  /** What `func create` copies, by paths: everything that is not called manifest.yaml, in whatever folder. */
  files: Map<string, string>
}

/** A repository of templates, as `func` 1.23 reads it (pkg/functions/repository.go and template.go of github.com/knative/func). */
export async function funcTemplates(root: string): Promise<FuncTemplate[]> {
  const repository = await configIn(root)
  const { templates = '.', name: _, version: __, ...shared } = repository
  if (typeof templates !== 'string') throw new Error('templates of manifest.yaml is a path')
  const at = join(root, templates)
  const found = (await foldersIn(at, NO_RUNTIME)).map(async (runtime) => {
    const ofRuntime = { ...shared, ...(await configIn(join(at, runtime))) }
    const names = await foldersIn(join(at, runtime), NO_TEMPLATE)
    return Promise.all(
      names.map(async (name) => {
        const folder = join(at, runtime, name)
        const config = { ...ofRuntime, ...(await configIn(folder)) }
        return { runtime, name, folder, config, files: await filesIn(folder) }
      }),
    )
  })
  return (await Promise.all(found)).flat()
}

async function configIn(folder: string): Promise<Config> {
  const text = await readFile(join(folder, MANIFEST), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
  })
  return text === undefined ? {} : (parse(text) as Config)
}

async function foldersIn(folder: string, without: readonly string[]): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true })
  const folders = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
  return folders.map(({ name }) => name).filter((name) => !without.includes(name))
}

async function filesIn(folder: string): Promise<Map<string, string>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
  const copied = files.filter((file) => basename(file) !== MANIFEST)
  return new Map(
    await Promise.all(copied.map(async (file) => [relative(folder, file), await readFile(file, 'utf8')] as const)),
  )
}

/** As `func create` does it, but for func.yaml. */
export async function createFrom({ files }: FuncTemplate, folder: string): Promise<void> {
  for (const [path, text] of files) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), text)
  }
}
