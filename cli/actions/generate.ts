import { existsSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { KubeObject } from '#contracts'
import { UsageError } from '#host/exit'
import { demandFunctions, functionNamed, loadFunctions, namableFunctions, type Selection } from '#host/functions'
import {
  functionRbac,
  type KnativeOptions,
  knativeManifests,
  platformRbac,
  reconcilerCrd,
  refuseBreaking,
  yamlOf,
} from '#install'
import { type CustomResourceDefinition, definitionsOf, manifest, type Reconciler } from '#sdk'
import { objectsIn } from '../events/objects.ts'

export type RbacOptions = Selection & { platform: boolean }
export type CrdsOptions = RbacOptions & { compatibleWith: string[]; new: string[] }
export type ManifestsOptions = Selection & { to: string; force: boolean }
export type KnativeOfOptions = Selection & KnativeOptions

/** Returns the CustomResourceDefinitions of the functions, for `kubectl apply --server-side -f -`. */
export async function generateCrds(options: CrdsOptions): Promise<string> {
  const functions = await (options.platform ? loadFunctions : demandFunctions)(options)
  await refuseBreakingChanges(functions, options)
  const crds = definitionsOf(functions)
  return (await yamlOf([...(options.platform ? [reconcilerCrd()] : []), ...crds])).trimEnd()
}

/**
 * Rejects with all breaking changes for objects that are stored under an earlier definition. Also rejects a definition
 * without an earlier version: the check must not pass because of a wrong file.
 */
async function refuseBreakingChanges(
  functions: readonly Reconciler[],
  { compatibleWith: files, new: brandNew }: Pick<CrdsOptions, 'compatibleWith' | 'new'>,
): Promise<void> {
  if (files.length === 0) return
  const earlier = (await Promise.all(files.map(objectsIn))).flat().filter(isDefinition)
  for (const [name, crd] of functions.flatMap((one) => definitionsOf([one]).map((crd) => [one.name, crd] as const))) {
    const known = earlier.filter(({ metadata }) => metadata.name === crd.metadata.name)
    if (known.length === 0 && !brandNew.includes(crd.metadata.name))
      throw new UsageError(
        `the definition ${crd.metadata.name} of function ${name} is not in ${files.join(', ')}: give the file that has it, or --new ${crd.metadata.name} where nothing is stored under it yet`,
      )
    for (const before of known) refuseBreaking(before, crd)
  }
}

const isDefinition = (object: KubeObject): object is CustomResourceDefinition =>
  object.kind === 'CustomResourceDefinition'

/**
 * Writes the definitions and the RBAC into a folder, and returns their paths. Writes nothing if a definition has a
 * breaking change.
 */
export async function generateManifests(options: ManifestsOptions): Promise<string[]> {
  const { to, force } = options
  const [crds, rbac] = [join(to, 'crds.yaml'), join(to, 'rbac.yaml')]
  const functions = await demandFunctions(options)
  if (!force && existsSync(crds)) {
    const brandNew = definitionsOf(functions).map(({ metadata }) => metadata.name)
    await refuseBreakingChanges(functions, { compatibleWith: [crds], new: brandNew })
  }
  await mkdir(to, { recursive: true })
  await writeFile(crds, await yamlOf(definitionsOf(functions)))
  await writeFile(rbac, await yamlOf(functions.flatMap((one) => functionRbac(manifest(one)))))
  return [crds, rbac]
}

/** Returns the RBAC that the functions need, for `kubectl apply -f -`. */
export async function generateRbac(options: RbacOptions): Promise<string> {
  const functions = await (options.platform ? loadFunctions : demandFunctions)(options)
  const rights = functions.flatMap((one) => functionRbac(manifest(one)))
  return (await yamlOf([...(options.platform ? platformRbac() : []), ...rights])).trimEnd()
}

/** Returns a Knative Service for each function, or for the named one, and the Reconciler that calls it. */
export async function generateKnative(name: string | undefined, options: KnativeOfOptions): Promise<string> {
  const isNamed = name !== undefined && options.builtin.length === 0
  const all = await (isNamed ? namableFunctions(options.function) : demandFunctions(options))
  const functions = name === undefined ? all : [functionNamed(all, name)]
  return (await yamlOf(functions.flatMap((one) => knativeManifests(one, options)))).trimEnd()
}
