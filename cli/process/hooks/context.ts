import { type FunctionInput, type KubeObject, TerminalError } from '#contracts'
import { type Binding, type HookConfig, isSelected } from './config.ts'

/** Returns what `jqFilter` makes of each object. */
export type Filter = (filter: string, objects: readonly KubeObject[]) => Promise<unknown[]>

interface Seen {
  object?: KubeObject
  filterResult?: unknown
}

/**
 * Returns the binding context of a run, as shell-operator writes it for an event. Undefined: the binding does not select the
 * object. Throws a TerminalError for kinds that the Reconciler does not declare.
 */
export async function contextOf(
  { primary, snapshots }: HookConfig,
  { object, owned, related, finalizing }: FunctionInput & { object: KubeObject },
  filter: Filter,
): Promise<object[] | undefined> {
  if (!isOfKind(primary, object))
    throw new TerminalError(
      `the Reconciler is for ${object.apiVersion} ${object.kind}, and the hook for ${primary.apiVersion ?? ''} ${primary.kind}`,
      { reason: 'OtherKind' },
    )
  if (!isSelected(primary, object)) return undefined
  const seen = (one: Binding): Promise<Seen[]> => {
    const lists = [...Object.entries(owned), ...Object.entries(related)].filter(([kind]) => isCalled(one, kind))
    if (lists.length === 0)
      throw new TerminalError(
        `the Reconciler has no ${one.kind} of kubernetes binding ${one.name}: add it to spec.related`,
        { reason: 'UndeclaredKind' },
      )
    const objects = lists.flatMap(([, list]) => list).filter((found) => isSelected(one, found))
    const once = new Map(objects.map((found) => [placeOf(found), found]))
    return asSeen(
      one,
      [...once.keys()].sort().map((place) => once.get(place) as KubeObject),
      filter,
    )
  }
  const [event] = await asSeen(primary, [object], filter)
  const included = await Promise.all(
    snapshots.map(async (one): Promise<[string, Seen[]]> => [one.name, await seen(one)]),
  )
  return [
    {
      binding: primary.name,
      ...(included.length > 0 && { snapshots: Object.fromEntries(included) }),
      type: 'Event',
      watchEvent: finalizing ? 'Deleted' : 'Added',
      ...event,
    },
  ]
}

const asSeen = async (
  { jqFilter, keepFullObjectsInMemory }: Binding,
  objects: readonly KubeObject[],
  filter: Filter,
): Promise<Seen[]> => {
  const results = jqFilter === undefined || objects.length === 0 ? [] : await filter(jqFilter, objects)
  return objects.map((object, index) => ({
    ...(keepFullObjectsInMemory && { object }),
    ...(jqFilter !== undefined && { filterResult: results[index] }),
  }))
}

const placeOf = ({ metadata }: KubeObject): string => `${metadata.namespace ?? ''}/${metadata.name}`

const isSameKind = (one: Binding, kind: string): boolean => one.kind.toLowerCase() === kind.toLowerCase()

const isOfKind = (one: Binding, { apiVersion, kind }: KubeObject): boolean =>
  isSameKind(one, kind) && (one.apiVersion ?? apiVersion) === apiVersion

/** Whether objects of the binding are in the list with this name, such as `Deployment.v1.apps`. */
function isCalled(one: Binding, name: string): boolean {
  const [kind = '', version = '', ...group] = name.split('.')
  const apiVersion = group.length === 0 ? version : `${group.join('.')}/${version}`
  return isSameKind(one, kind) && (one.apiVersion ?? apiVersion) === apiVersion
}
