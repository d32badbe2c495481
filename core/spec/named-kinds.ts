import { apiVersionOf, groupOf, isRecord, type KubeObject, kindName } from '#contracts'
import { valuesAt } from './selector.ts'

/** The condition of a Reconciler that a kind, which a primary names, is not listed. */
export const NAMED_KINDS = 'NamedKinds'

/** A kind that a primary names. Its version does not count, as in an owner reference. */
export interface NamedKind {
  group: string
  kind: string
  /** Left out: the primary names none. */
  version?: string
}

/** A relation to objects of a kind. With `kindPath`: only of primaries that name this kind there. */
interface OfKind extends NamedKind {
  kindPath?: string | undefined
}

/**
 * Returns the kinds that the objects at a path name: by `kind`, and by `apiVersion`, `group` or `apiGroup`. Without one of
 * these three, the kind is of the core group.
 */
const kindsAt = (primary: object, path: string): NamedKind[] =>
  valuesAt(primary, path).flatMap((value) => kindIn(value) ?? [])

function kindIn(value: unknown): NamedKind | undefined {
  if (!isRecord(value) || typeof value['kind'] !== 'string' || value['kind'] === '') return undefined
  const { kind, apiVersion, apiGroup, group = apiGroup } = value
  if (typeof apiVersion !== 'string') return { kind, group: typeof group === 'string' ? group : '' }
  return { kind, group: groupOf(apiVersion), version: apiVersion.split('/').at(-1) ?? '' }
}

/** Whether both are the same kind, in any version. */
export const isSameKind = (one: NamedKind | undefined, { group, kind }: NamedKind): boolean =>
  one?.group === group && one.kind === kind

/** Whether the primary names the kind of the relation. It always counts as named without `kindPath`. */
export const isKindNamed = (related: OfKind, primary: KubeObject): boolean =>
  related.kindPath === undefined || kindsAt(primary, related.kindPath).some((named) => isSameKind(named, related))

/**
 * Returns the values at a path of the primary that count for the relation. With `kindPath`: none if the primary does not
 * name the kind; and of a path below it, those in the objects that name the kind.
 */
export function relationValues(related: OfKind, primary: KubeObject, path: string): unknown[] {
  const { kindPath } = related
  if (kindPath === undefined) return valuesAt(primary, path)
  const naming = valuesAt(primary, kindPath).filter((value) => isSameKind(kindIn(value), related)) as object[]
  if (path.startsWith(`${kindPath}.`)) return naming.flatMap((one) => valuesAt(one, path.slice(kindPath.length + 1)))
  return naming.length === 0 ? [] : valuesAt(primary, path)
}

/**
 * Returns, in words, that the primary names a kind that no relation with the same path has. `kindPaths`: further paths.
 * Undefined: it does not.
 */
export function kindNotGranted(
  { related, kindPaths = [] }: { related: readonly OfKind[]; kindPaths?: readonly string[] | undefined },
  primary: KubeObject,
): string | undefined {
  for (const path of new Set([...kindPaths, ...related.flatMap(({ kindPath = [] }) => kindPath)])) {
    const granted = related.filter(({ kindPath }) => kindPath === path)
    const unknown = kindsAt(primary, path).find((named) => !granted.some((one) => isSameKind(named, one)))
    if (unknown !== undefined) return refusal(unknown, path)
  }
  return undefined
}

/** Users write the name of a kind, and administrators copy the command. */
const KIND_NAME = /^[A-Za-z0-9.-]{1,400}$/

function refusal({ kind, group, version = 'VERSION' }: NamedKind, path: string): string {
  const name = kindName(kind, apiVersionOf({ group, version }))
  if (!KIND_NAME.test(name))
    return `${path} names ${JSON.stringify(name.slice(0, 100))}, which is no kind, so the function is not called`
  return (
    `${path} names ${name}, which the function may not read, so it is not called: an administrator grants it by ` +
    `fairlead install --kinds ${name}=PLURAL`
  )
}
