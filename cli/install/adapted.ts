import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath, servedResources } from '#kube'
import { UsageError } from '#process/exit'
import type { Reconciler } from '#sdk'
import { type Says, storedReconcilers } from './installed-objects.ts'

type Declarer = NonNullable<Reconciler['declaredBy']>

/**
 * Returns the functions, and after each adapter those that the objects in the cluster declare. Rejects with a line for each
 * object that has what is not offered: as long as one is not served, what has served it until now must not be stopped.
 */
export async function withDeclared(
  kube: KubeClient,
  functions: readonly Reconciler[],
  says: Says = () => undefined,
): Promise<Reconciler[]> {
  if (functions.every(({ adapts }) => adapts === undefined)) return [...functions]
  const served = await servedResources(kube)
  const refused: string[] = []
  const declared: Reconciler[] = []
  for (const one of functions) {
    const { adapts } = one
    // A controller of this kind cannot exist.
    if (adapts !== undefined && !served.some((kind) => isSame(kind, adapts))) continue
    declared.push(one)
    for (const object of adapts ? await objectsOf(kube, adapts) : []) {
      try {
        const named = adapts?.resources(object) ?? []
        const kinds = served
          .filter((kind) => named.some((ref) => isSame(ref, kind)))
          .map(({ group, version, resource, kind, hasStatus }) => ({ group, version, resource, kind, hasStatus }))
        declared.push(...declaredBy(one, { object: shortened(object), kinds }))
      } catch (error) {
        refused.push((error as Error).message)
      }
    }
  }
  if (refused.length > 0)
    throw new UsageError(['nothing is installed:', ...refused.map((line) => `  ${line}`)].join('\n'))
  const [absent] = functions.flatMap(({ adapts = [] }) => adapts)
  if (absent && declared.every(({ adapts }) => adapts === undefined))
    throw new UsageError(
      `the cluster has no ${absent.kind} (${absent.resource}.${absent.group}): there is nothing to adapt`,
    )
  await nameLeftovers(kube, functions, declared, says)
  return declared
}

/** Returns the functions, and after each adapter those that are installed: their objects may be gone. */
export async function withInstalled(kube: KubeClient, functions: readonly Reconciler[]): Promise<Reconciler[]> {
  if (functions.every(({ adapts }) => adapts === undefined)) return [...functions]
  const stored = [...(await storedReconcilers(kube)).values()]
  return functions.flatMap((one) => [
    one,
    ...stored.flatMap(({ spec }) => {
      const { function: name, with: given } = spec?.invoke?.pull ?? {}
      const { part, ...from } = (given ?? {}) as Declarer['with']
      return one.adapts && name === one.name && given ? declaredBy(one, from).slice(part, part + 1) : []
    }),
  ])
}

function declaredBy({ name, adapts }: Reconciler, from: Omit<Declarer['with'], 'part'>): Reconciler[] {
  const declared = adapts?.declare(from.object, from.kinds) ?? []
  return declared.map((one, part) => ({ ...one, declaredBy: { function: name, with: { ...from, part } } }))
}

/** The revision of a function that an object declares: a change of the declaration runs every object again. */
export const revisionOf = ({ declaredBy: by }: Reconciler): string | undefined =>
  by && hash('sha256', JSON.stringify(by.with), 'base64url').slice(0, 16)

/** Of the metadata, an object declares by its name and the annotations of Fairlead. */
const shortened = ({ apiVersion, kind, metadata: { name, annotations = {} }, spec }: KubeObject): KubeObject => {
  const own = Object.entries(annotations).filter(([key]) => key.startsWith('fairlead.dev/'))
  return { apiVersion, kind, metadata: { name, ...(own.length > 0 && { annotations: Object.fromEntries(own) }) }, spec }
}

const isSame = (one: { group: string; version: string; resource: string }, other: typeof one): boolean =>
  one.group === other.group && one.version === other.version && one.resource === other.resource

async function objectsOf(kube: KubeClient, ref: NonNullable<Reconciler['adapts']>): Promise<KubeObject[]> {
  const objects: KubeObject[] = []
  for await (const { items } of kube.list(resourcePath(ref))) objects.push(...items)
  return objects
}

/** Names the Reconcilers whose objects are gone: their own objects may still need them. */
async function nameLeftovers(
  kube: KubeClient,
  functions: readonly Reconciler[],
  declared: readonly Reconciler[],
  says: Says,
): Promise<void> {
  const names = new Set(declared.map(({ name }) => name))
  for (const [name, { spec }] of await storedReconcilers(kube))
    if (!names.has(name) && functions.some((one) => one.adapts && one.name === spec?.invoke?.pull?.function))
      says(`Reconciler ${name} stays, and nothing declares it any more: kubectl delete reconciler ${name}`)
}
