import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { type ExistingKind, existingFiles } from './existing.ts'
import { NameError, namesOf, projectName } from './names.ts'
import { type Files, projectFiles, type TemplateName } from './project.ts'

export interface MakeOptions {
  template: TemplateName
  kind?: string
  plural?: string
  group?: string
  fairlead: FairleadSource
  /** An existing kind, whose names and types replace the other options. */
  existing?: ExistingKind
  /** The name of the chart, for the template `helm`. */
  chart?: string | undefined
  /** `npm_config_user_agent` */
  userAgent?: string
}

/**
 * Creates a project, and returns the text for the user: its files and the next steps. Throws a NameError for a wrong
 * name.
 */
export async function makeProject(folder: string, options: MakeOptions): Promise<string> {
  const { template, kind = 'Website', group = 'example.com', plural, fairlead, existing, chart, userAgent } = options
  const project = projectName(resolve(folder).split(/[/\\]/).at(-1) ?? '')
  const names = namesOf(existing?.names ?? { kind, group, plural })
  const files = await projectFiles({ template, project, names, fairlead: fairlead.spec, chart })
  if (existing) for (const [path, text] of existingFiles(existing, names.singular)) files.set(path, text)
  await writeProject(resolve(folder), files)
  const paths = [...files.keys()].map((path) => `  ${join(folder, path)}\n`)
  const source = files.has('package.json') ? `\nnpm will look for fairlead ${fairlead.spec}: ${fairlead.why}\n` : ''
  return `${paths.join('')}${source}\nNext:\n\n${nextSteps(template, folder, userAgent)}`
}

/** From where npm installs Fairlead in a new project. */
export interface FairleadSource {
  /** A version, or a place such as `file:PATH`. */
  spec: string
  /** For the user, after a colon: how it was chosen. */
  why: string
}

/** What the user has named. A path is from the folder of the command, as in a shell. */
export const given = (spec: string): FairleadSource => ({
  spec: spec.replace(/^file:(.+)$/, (_, path: string) => `file:${resolve(path)}`),
  why: '--fairlead names it',
})

/** The version of the command itself. */
export const released = (version: string): FairleadSource => ({
  spec: `^${version}`,
  why: '--fairlead file:PATH names a tarball; without it, the version of this command, if the registry has it',
})

/** Returns the next commands, for the package manager that has started the command (`npm_config_user_agent`). */
function nextSteps(template: TemplateName, folder: string, userAgent = ''): string {
  const manager = /^(pnpm|yarn|bun)\//.exec(userAgent)?.[1] ?? 'npm'
  const enter = folder === '.' ? [] : [`cd ${folder}`]
  const steps: Record<TemplateName, string[]> = {
    resource: [...ofNode(manager)],
    objects: [...ofNode(manager)],
    existing: [...ofNode(manager)],
    helm: [...ofNode(manager)],
    'http-python': ['python3 -m unittest', 'PORT=8080 python3 server.py'],
    'http-go': ['go test ./...', 'PORT=8080 go run .'],
  }
  return [...enter, ...steps[template]].map((step) => `  ${step}\n`).join('')
}

const ofNode = (manager: string): string[] => [
  `${manager} install`,
  `${manager} run dev             # on a Kubernetes of this machine; the first start builds it, in minutes`,
  `${manager} run dev -- --kubeconfig ~/.kube/config   # on a cluster that you have: kind, minikube, k3d`,
  `${manager} test                # without a cluster`,
]

/** Writes a project into a folder that does not exist, or contains only .git. */
async function writeProject(folder: string, files: Files): Promise<void> {
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
