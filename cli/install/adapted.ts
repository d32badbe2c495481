import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath, servedResources } from '#kube'
import { UsageError } from '#process/exit'
import type { Reconciler } from '#sdk'
import { type Says, storedReconcilers } from './installed-objects.ts'

type Declarer = NonNullable<Reconciler['declaredBy']>

/**
 * Returns the functions, and after each adapter those that the objects in the cluster declare. Rejects with a line for each
 * object that has what is not offered: as long as one is not served, what has served it until now must not be stopped. Where the
 * adapter is installed already, the others are returned, `refuses` gets the lines, and what is refused stays as it is.
 */
export async function withDeclared(
  kube: KubeClient,
  functions: readonly Reconciler[],
  { says = () => undefined, refuses = says }: { says?: Says; refuses?: Says } = {},
): Promise<Reconciler[]> {
  if (functions.every(({ adapts }) => adapts === undefined)) return [...functions]
  const kindsServed = await servedResources(kube)
  const stored = await storedReconcilers(kube)
  const refused: { name: string; line: string }[] = []
  const declared: Reconciler[] = []
  for (const one of functions) {
    const { adapts } = one
    // A controller of this kind cannot exist.
    if (adapts !== undefined && !kindsServed.some((kind) => isSame(kind, adapts))) continue
    declared.push(one)
    for (const object of adapts ? await objectsOf(kube, adapts) : []) {
      try {
        const named = adapts?.resources(object) ?? []
        const kinds = kindsServed
          .filter((kind) => named.some((ref) => isSame(ref, kind)))
          .map(({ group, version, resource, kind, hasStatus }) => ({ group, version, resource, kind, hasStatus }))
        const made = declaredBy(one, { object: shortened(object), kinds })
        for (const { name } of made) refuseTaken(name, object, declared, stored)
        declared.push(...made)
      } catch (error) {
        refused.push({ name: object.metadata.name, line: (error as Error).message })
      }
    }
  }
  const served = [...stored.values()].flatMap(({ spec }) => spec?.invoke?.pull ?? [])
  const isInstalled = served.some((pull) => functions.some((one) => one.adapts && one.name === pull.function))
  if (refused.length > 0 && !isInstalled)
    throw new UsageError(['nothing is installed:', ...refused.map(({ line }) => `  ${line}`)].join('\n'))
  for (const { line } of refused) refuses(`${line}; what was installed for it stays`)
  const [absent] = functions.flatMap(({ adapts = [] }) => adapts)
  if (absent && declared.every(({ adapts }) => adapts === undefined))
    throw new UsageError(
      `the cluster has no ${absent.kind} (${absent.resource}.${absent.group}): there is nothing to adapt`,
    )
  nameLeftovers(functions, { declared, stored, refused, says })
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

type Stored = Awaited<ReturnType<typeof storedReconcilers>>

/** Whoever writes such an object must not take the Reconciler of another one, with its account. */
function refuseTaken(
  name: string,
  { kind, metadata }: KubeObject,
  declared: readonly Reconciler[],
  stored: Stored,
): void {
  const { object } = (stored.get(name)?.spec?.invoke?.pull?.with ?? {}) as Partial<Declarer['with']>
  const isOfOther = stored.has(name) && (object?.kind !== kind || object.metadata.name !== metadata.name)
  if (isOfOther || declared.some((one) => one.name === name))
    throw new Error(`${kind} ${metadata.name} would be served by Reconciler ${name}, which is that of something else`)
}

/** Names the Reconcilers whose objects are gone: their own objects may still need them. */
function nameLeftovers(
  functions: readonly Reconciler[],
  {
    declared,
    stored,
    refused,
    says,
  }: { declared: readonly Reconciler[]; stored: Stored; refused: readonly { name: string }[]; says: Says },
): void {
  const names = new Set(declared.map(({ name }) => name))
  for (const [name, { spec }] of stored) {
    const { function: served, with: given } = spec?.invoke?.pull ?? {}
    const adapter = functions.find((one) => one.adapts && one.name === served)
    const { object } = (given ?? {}) as Partial<Declarer['with']>
    if (adapter === undefined || names.has(name) || refused.some((one) => one.name === object?.metadata.name)) continue
    says(
      `Reconciler ${name} stays, and nothing declares it any more: fairlead uninstall --adapter metacontroller --reconciler ${name}`,
    )
  }
}
