import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { isNotFound, resourcePath } from '#kube'
import { UsageError } from '#process/exit'
import { openKube } from '#process/kube'
import { version } from '#process/version'
import {
  addKind,
  type Definition,
  existingKind,
  kindFiles,
  makeProject,
  NameError,
  namesOf,
  type TemplateName,
} from '#scaffold'
import type { CommandContext } from '../options.ts'
import { objectsIn } from './manifests.ts'

export interface NewOptions {
  template: TemplateName
  kind?: string
  plural?: string
  group?: string
  crd?: string
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
    const existing = await existingOf(options, context)
    const fairlead = options.fairlead ?? thisVersion()
    const userAgent = process.env['npm_config_user_agent']
    context.print(await makeProject(folder, { ...options, fairlead, existing, userAgent }))
  })
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

/** A clone of the repository depends on itself: npm may not have its version. */
const thisVersion = (): string => (existsSync(join(ROOT, 'package-lock.json')) ? `file:${ROOT}` : `^${version}`)

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
