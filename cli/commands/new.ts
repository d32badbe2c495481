import { existsSync } from 'node:fs'
import { cp, readFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { readChart } from '#helm'
import { isNotFound, resourcePath } from '#kube'
import { UsageError } from '#process/exit'
import { openKube } from '#process/kube'
import { version } from '#process/version'
import {
  addKind,
  type Definition,
  existingKind,
  type FairleadSource,
  given,
  kindFiles,
  type MakeOptions,
  makeProject,
  NameError,
  namesOf,
  released,
} from '#scaffold'
import type { CommandContext } from '../options.ts'
import { objectsIn } from './manifests.ts'

export interface NewOptions extends Pick<MakeOptions, 'template' | 'kind' | 'plural' | 'group'> {
  crd?: string
  /** The folder of a chart. */
  helm?: string
  fairlead?: string
}

export interface NewKindOptions {
  plural?: string
  group: string
}

const ROOT = resolve(import.meta.dirname, '../..')
const DEFINITIONS = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }

/** Creates a project and prints the next steps. Changes only the folder, and installs nothing. */
export async function newProject(folder: string, options: NewOptions, context: CommandContext): Promise<void> {
  await usable(async () => {
    if (options.helm !== undefined) return newHelmProject(folder, { ...options, helm: options.helm }, context)
    const existing = await existingOf(options, context)
    const { fairlead: named } = options
    const fairlead = named === undefined ? await ownSource(ROOT) : given(named)
    const userAgent = process.env['npm_config_user_agent']
    context.print(await makeProject(folder, { ...options, fairlead, existing, userAgent }))
  })
}

/** Copies the chart, and names what of it does not give the same objects each time. */
async function newHelmProject(folder: string, options: NewOptions & { helm: string }, { print }: CommandContext) {
  const chart = await readChart(resolve(options.helm)).catch((cause: Error) => {
    throw new UsageError(cause.message, { cause })
  })
  const fairlead = options.fairlead === undefined ? await ownSource(ROOT) : given(options.fairlead)
  const words = chart.name.split(/[^A-Za-z0-9]+/)
  const kind = options.kind ?? words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('')
  const userAgent = process.env['npm_config_user_agent']
  const made = { ...options, kind, template: 'helm', chart: chart.name, fairlead, userAgent } as const
  const next = await makeProject(folder, made)
  await cp(chart.folder, join(folder, 'helm-charts', chart.name), { recursive: true })
  print(`  ${join(folder, 'helm-charts', chart.name)}/\n${next}`)
  for (const { place, name, advice } of chart.unstable) print(`${place}: ${name}: ${advice}`)
}

export async function newKind(
  kind: string,
  { plural, group }: NewKindOptions,
  { print }: CommandContext,
): Promise<void> {
  await usable(async () => {
    const names = namesOf({ kind, group, plural })
    const written = await addKind(process.cwd(), await kindFiles(names), names.singular)
    print(written.map((path) => `  ${path}`).join('\n'))
  })
}

/**
 * Returns from where the package in `root` was installed, so that a project gets the same: the registry may not have its
 * version. npm keeps no record of a global installation: it counts as one from the registry.
 */
async function ownSource(root: string): Promise<FairleadSource> {
  // A clone, or a folder that npm has linked.
  if (!root.includes('/node_modules/')) {
    const isClone = existsSync(join(root, 'package-lock.json'))
    const why = isClone
      ? 'the clone of this command. For an image, install the tarball of its npm run build'
      : 'its folder'
    return { spec: `file:${root}`, why }
  }
  const { file, spec } = await dependent(root)
  const [, path] = /^(?:file|link|portal):(?:\/\/)?(.+)$/.exec(spec) ?? []
  const why = `as in ${file}, by which this command was installed`
  if (path === undefined) {
    if (!spec.includes('/')) return released(version)
    if (!mayHaveCredentials(spec)) return { spec, why }
    return insteadOf(`the address in ${file}, from which this command was installed, may contain credentials`)
  }
  const place = resolve(dirname(file), path)
  if (existsSync(place)) return { spec: `file:${place}`, why }
  return insteadOf(`${place}, from which this command was installed, is gone`)
}

function insteadOf(reason: string): FairleadSource {
  const { spec, why } = released(version)
  return { spec, why: `${why}; ${reason}` }
}

/**
 * Whether a place may contain a password or a token: a URL with a user or a query, or another address with an `@` or a
 * `?`, such as `github:USER:TOKEN@OWNER/NAME`. In the path of a URL and after `npm:`, an `@` begins a scope.
 */
function mayHaveCredentials(spec: string): boolean {
  if (spec.startsWith('npm:')) return false
  const url = URL.parse(spec)
  if (url === null || url.host === '') return /[@?]/.test(spec)
  return url.username !== '' || url.password !== '' || url.search !== ''
}

/** Finds the package.json that depends on the package in `root`. npm, npx, pnpm and Yarn have it in a folder above. */
async function dependent(root: string): Promise<{ file: string; spec: string }> {
  for (let at = dirname(root); at !== dirname(at); at = dirname(at)) {
    const file = join(at, 'package.json')
    const spec = await specIn(file)
    if (spec !== undefined) return { file, spec }
  }
  return { file: '', spec: '' }
}

/** Returns undefined also for a file that does not exist, or that is no package.json. */
async function specIn(file: string): Promise<string | undefined> {
  try {
    const { dependencies, devDependencies } = JSON.parse(await readFile(file, 'utf8')) as Manifest
    const spec = dependencies?.['fairlead'] ?? devDependencies?.['fairlead']
    return typeof spec === 'string' ? spec : undefined
  } catch {
    return undefined
  }
}

type Manifest = Partial<Record<'dependencies' | 'devDependencies', Record<string, unknown>>>

async function existingOf({ template, crd, kind, plural, group }: NewOptions, context: CommandContext) {
  if (template !== 'existing') {
    if (crd !== undefined) throw new UsageError(`--crd is for --template existing, not for ${template}`)
    return undefined
  }
  if (crd === undefined) throw new UsageError('--template existing needs --crd: a file, or the name of a definition')
  for (const [name, value] of Object.entries({ kind, plural, group }))
    if (value !== undefined) throw new UsageError(`--${name} is not for --template existing: the definition has it`)
  return existingKind(existsSync(crd) ? await definitionIn(crd) : await definitionOnCluster(crd, context))
}

async function definitionIn(file: string): Promise<Definition> {
  const found = (await objectsIn(file)).filter(({ kind }) => kind === 'CustomResourceDefinition')
  if (found.length === 1) return found[0] as unknown as Definition
  throw new UsageError(`${file} has ${found.length} CustomResourceDefinitions: give a file with one`)
}

async function definitionOnCluster(name: string, { config }: CommandContext): Promise<Definition> {
  await using kube = await openKube(await config())
  return (await kube.get(resourcePath(DEFINITIONS, undefined, name)).catch((error: unknown) => {
    if (!isNotFound(error)) throw error
    throw new UsageError(`there is no file ${name}, and the cluster has no CustomResourceDefinition of that name`)
  })) as unknown as Definition
}

async function usable(work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch (error) {
    if (error instanceof NameError) throw new UsageError(error.message, { cause: error })
    throw error
  }
}
