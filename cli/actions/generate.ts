import { readFile } from 'node:fs/promises'
import { parseAllDocuments } from 'yaml'
import { functionRbac, type KnativeOptions, knativeManifests, platformRbac, reconcilerCrd, yamlOf } from '#crds'
import { type CustomResourceDefinition, manifest, type Reconciler } from '#sdk'
import { refuseBreaking } from '../compatibility.ts'
import { UsageError } from '../exit.ts'
import { functionNamed, loadFunctions } from '../functions.ts'

interface OfFunctions {
  /** Modules that export them. */
  function: string[]
}
export type RbacOptions = OfFunctions & { platform: boolean }
export type CrdsOptions = RbacOptions & { compatibleWith: string[] }
export type KnativeOfOptions = OfFunctions & KnativeOptions

/** The CustomResourceDefinitions of the functions, for kubectl apply --server-side -f -. */
export async function generateCrds(options: CrdsOptions): Promise<string> {
  const functions = await loadFunctions(options.function)
  await refuseBreakingChanges(functions, options.compatibleWith)
  const crds = functions.map((one) => one.for.crd())
  return (await yamlOf([...(options.platform ? [reconcilerCrd()] : []), ...crds])).trimEnd()
}

/** Rejects, with all that is found, where objects stored under an earlier definition would be lost or refused. */
async function refuseBreakingChanges(functions: readonly Reconciler[], files: readonly string[]): Promise<void> {
  const earlier = (await Promise.all(files.map(crdsIn))).flat()
  for (const crd of functions.map((one) => one.for.crd()))
    for (const before of earlier.filter(({ metadata }) => metadata.name === crd.metadata.name))
      refuseBreaking(before, crd)
}

async function crdsIn(file: string): Promise<CustomResourceDefinition[]> {
  const text = await readFile(file, 'utf8').catch((cause: Error) => {
    throw new UsageError(`cannot read ${file}: ${cause.message}`, { cause })
  })
  const objects = parseAllDocuments(text).map((document) => document.toJS() as CustomResourceDefinition | null)
  return objects.filter((object) => object?.kind === 'CustomResourceDefinition') as CustomResourceDefinition[]
}

/** The rights that the functions need, for kubectl apply -f -. */
export async function generateRbac(options: RbacOptions): Promise<string> {
  const functions = await loadFunctions(options.function)
  const rights = functions.flatMap((one) => functionRbac(manifest(one)))
  return (await yamlOf([...(options.platform ? platformRbac() : []), ...rights])).trimEnd()
}

/** A Knative Service for each function, or for the one of that name, and the Reconciler that calls it there. */
export async function generateKnative(name: string | undefined, options: KnativeOfOptions): Promise<string> {
  const all = await loadFunctions(options.function)
  const functions = name === undefined ? all : [functionNamed(all, name)]
  return (await yamlOf(functions.flatMap((one) => knativeManifests(one, options)))).trimEnd()
}
