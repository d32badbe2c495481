import { readFile } from 'node:fs/promises'
import { parseAllDocuments } from 'yaml'
import { functionRbac, type KnativeOptions, knativeManifests, platformRbac, reconcilerCrd, yamlOf } from '#crds'
import { breakingChanges, type CustomResourceDefinition, manifest, type Reconciler } from '#sdk'
import { IncompatibleError, UsageError } from '../exit.ts'

/** The CustomResourceDefinitions of these functions, for kubectl apply --server-side -f -. */
export const generateCrds = (functions: readonly Reconciler[], platform: boolean): string =>
  yamlOf([...(platform ? [reconcilerCrd()] : []), ...functions.map((one) => one.for.crd())]).trimEnd()

/** Rejects, with all that is found, where objects stored under an earlier definition would be lost or refused. */
export async function refuseBreakingChanges(functions: readonly Reconciler[], files: readonly string[]): Promise<void> {
  const earlier = (await Promise.all(files.map(crdsIn))).flat()
  for (const crd of functions.map((one) => one.for.crd()))
    for (const before of earlier.filter(({ metadata }) => metadata.name === crd.metadata.name)) refuse(before, crd)
}

export function refuse(before: CustomResourceDefinition, after: CustomResourceDefinition): void {
  const found = breakingChanges(before, after)
  if (found.length === 0) return
  const { name } = after.metadata
  throw new IncompatibleError(
    `${name} would break objects that are stored:\n${found.map((one) => `  ${one}`).join('\n')}`,
  )
}

async function crdsIn(file: string): Promise<CustomResourceDefinition[]> {
  const text = await readFile(file, 'utf8').catch((cause: Error) => {
    throw new UsageError(`cannot read ${file}: ${cause.message}`, { cause })
  })
  const objects = parseAllDocuments(text).map((document) => document.toJS() as CustomResourceDefinition | null)
  return objects.filter((object) => object?.kind === 'CustomResourceDefinition') as CustomResourceDefinition[]
}

/** The rights that these functions need, for kubectl apply -f -. */
export const generateRbac = (functions: readonly Reconciler[], platform: boolean): string =>
  yamlOf([...(platform ? platformRbac() : []), ...functions.flatMap((one) => functionRbac(manifest(one)))]).trimEnd()

/** A Knative Service for each function, and the Reconciler that calls it there. */
export const generateKnative = (functions: readonly Reconciler[], options: KnativeOptions): string =>
  yamlOf(functions.flatMap((one) => knativeManifests(one, options))).trimEnd()
