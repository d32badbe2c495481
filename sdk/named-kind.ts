import { type KubeObject, type ResourceRef, TerminalError } from '#contracts'
import { isKindNamed, kindNotGranted, relation } from '#spec'
import type { Reconciler, RelatedKind } from './definition.ts'
import type { Kind } from './kinds.ts'
import { keysOf, refuseUnknown } from './options.ts'

type NamedKindOptions = Pick<RelatedKind, 'selector' | 'within' | 'namespacePath' | 'metadataOnly'> &
  Required<Pick<RelatedKind, 'kindPath' | 'byName'>>

/**
 * A related kind that is known only at run time: `namedKind()` makes it.
 *
 * @example
 * import { type NamedKind, namedKind } from 'fairlead'
 * const Target: NamedKind = namedKind({ kindPath: 'spec.target', byName: 'spec.target.name' })
 * Target.kindPath // => 'spec.target'
 */
export interface NamedKind extends Kind, NamedKindOptions {}

/** Stands for each name in the API, which only an object and the installation know. */
const ANY = '*'

const OPTIONS = keysOf<NamedKindOptions>({
  kindPath: true,
  byName: true,
  selector: true,
  within: true,
  namespacePath: true,
  metadataOnly: true,
})

/**
 * Declares a related kind that each object names itself, in the object or the objects at `kindPath`: by `kind`, and by
 * `apiVersion`, `group` or `apiGroup`. A path of `byName` or `namespacePath` below `kindPath` counts in the objects that name
 * the kind. `related()` then returns the objects of all named kinds.
 *
 * A kind is watched while an object names it. An administrator grants each kind with `fairlead install --kinds`. The
 * function is not called for an object that names a kind that is not granted, or whose objects are not known completely.
 *
 * Throws an Error that names an unknown option.
 *
 * @example
 * import { ConfigMap, grantKinds, namedKind, reconciler } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const Target = namedKind({ kindPath: 'metadata', byName: 'spec.html' })
 * const reader = reconciler({
 *   name: 'reader', for: Website, related: [Target],
 *   reconcile: ({ related }) => ({ status: { ready: related(Target).length } }),
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * await outcomeOf(grantKinds(reader, [ConfigMap]), { object }) // => { status: { ready: 0 } }
 */
export function namedKind(options: NamedKindOptions): NamedKind {
  refuseUnknown(options, OPTIONS, 'namedKind')
  return Object.freeze({ ...of({ group: ANY, version: ANY, resource: ANY, kind: ANY }), ...options })
}

const of = ({ group, version, resource, kind }: ResourceRef & { kind: string }): Kind => ({
  group,
  version,
  resource,
  kind,
  strategy: 'Apply',
  parse: (object) => object,
})

export const isNamedKind = (kind: RelatedKind): kind is NamedKind => kind.group === ANY

/**
 * Returns the function with the kinds that an administrator has granted, as `fairlead install --kinds` does: its objects may
 * name these, and no others. Other functions stay as they are.
 *
 * @example
 * import { ConfigMap, grantKinds, manifest } from 'fairlead'
 * import { website } from './website.ts'
 * manifest(grantKinds(website, [ConfigMap])).spec.related // => []
 */
export function grantKinds<Function extends Reconciler>(
  reconciler: Function,
  kinds: readonly (ResourceRef & { kind: string })[],
): Function {
  const granted = reconciler.related
    .filter(isNamedKind)
    .flatMap((named) => kinds.map((kind) => ({ ...named, ...of(kind) })))
  return granted.length === 0 ? reconciler : { ...reconciler, related: [...reconciler.related, ...granted] }
}

/**
 * Throws a TerminalError if the object names a kind that is not granted. The input has a list for each kind that is, even
 * if it is empty.
 */
export function demandGranted({ related }: Reconciler, object: KubeObject, given: Record<string, KubeObject[]>): void {
  for (const { kindPath } of related.filter(isNamedKind)) {
    const granted = Object.keys(given).map((key) => ({ ...kindOf(key), kindPath }))
    const fault = kindNotGranted({ related: granted, kindPaths: [kindPath] }, object)
    if (fault !== undefined) throw new TerminalError(fault, { reason: 'KindNotGranted' })
  }
}

/** Returns the objects in the input that are of a named kind and related to the object. */
export function namedObjects(named: NamedKind, object: KubeObject, given: Record<string, KubeObject[]>): KubeObject[] {
  return Object.entries(given).flatMap(([key, objects]) => {
    const one = { within: 'Namespace' as const, ...named, ...kindOf(key) }
    return isKindNamed(one, object) ? objects.filter(relation(one)(object)) : []
  })
}

/** Parses the key of a kind in the input: see inputKey(). */
function kindOf(key: string): { group: string; version: string; kind: string } {
  const [kind = '', version = '', ...group] = key.split('.')
  return { group: group.join('.'), version, kind }
}
