import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { keyOf } from '#events'
import type { MemberIndex } from './member-index.ts'
import type { Relation } from './relation.ts'
import type { Change } from './routing.ts'
import { append, SelectorIndex } from './selector-index.ts'

interface RelatedKind {
  all: Relation[]
  bySelector: SelectorIndex<Relation>
  /** Relations that a change may concern with any labels of the object. */
  byName: Relation[]
  withMembers: Relation[]
}

const emptyKind = (): RelatedKind => ({ all: [], bySelector: new SelectorIndex(), byName: [], withMembers: [] })

/** Finds relations by the contents of a change, so that a change of one object does not check all relations. */
export class RelationIndex {
  readonly #members: ReadonlyMap<string, MemberIndex<Relation>>
  readonly #byRelated = new Map<string, RelatedKind>()
  readonly #byPrimary = new Map<string, Relation[]>()
  readonly #byCoverage = new Map<string, Relation[]>()

  /** `members`: by resource. */
  constructor(relations: readonly Relation[], members: ReadonlyMap<string, MemberIndex<Relation>>) {
    this.#members = members
    for (const relation of relations) {
      const { related, reconciler } = relation.to
      const kind = this.#open(related)
      kind.all.push(relation)
      if (related.byName === undefined) kind.bySelector.add(relation, related.selector)
      else kind.byName.push(relation)
      if (relation.hasMembers) kind.withMembers.push(relation)
      if (!relation.isByField) continue
      append(this.#byPrimary, resourceName(reconciler.spec.for), relation)
      append(this.#byCoverage, `${resourceName(reconciler.spec.for)} ${reconciler.coverageId}`, relation)
    }
  }

  /** Returns the relations to a resource. */
  of(ref: ResourceRef): readonly Relation[] {
    return this.#kind(ref).all
  }

  /** Returns the relations in which fields of these primaries name the related objects. */
  namedBy(primary: ResourceRef, coverageId?: string): readonly Relation[] {
    const name = resourceName(primary)
    const found = coverageId === undefined ? this.#byPrimary.get(name) : this.#byCoverage.get(`${name} ${coverageId}`)
    return found ?? []
  }

  /** Returns the relations that remember their members, and that had this object or may match it. */
  remembering(ref: ResourceRef, key: string, object: KubeObject | undefined): readonly Relation[] {
    const { bySelector, withMembers } = this.#kind(ref)
    const matching = object === undefined ? [] : bySelector.candidates(object)
    return unique([...matching.filter(({ hasMembers }) => hasMembers), ...this.#having(ref, key, withMembers)])
  }

  /** Returns the relations that the change may concern. Some of them may not be concerned. */
  concernedBy(ref: ResourceRef, { namespace, name, object }: Change): readonly Relation[] {
    const { all, byName, bySelector, withMembers } = this.#kind(ref)
    if (object === undefined) return all
    const having = this.#having(ref, keyOf(namespace, name), withMembers)
    return unique([...byName, ...bySelector.candidates(object), ...having])
  }

  #having(ref: ResourceRef, key: string, withMembers: readonly Relation[]): Relation[] {
    const members = this.#members.get(resourceName(ref))?.of(key) ?? []
    return [...members, ...withMembers.filter(({ isReady }) => !isReady)]
  }

  #kind(ref: ResourceRef): RelatedKind {
    return this.#byRelated.get(resourceName(ref)) ?? emptyKind()
  }

  #open(ref: ResourceRef): RelatedKind {
    const kind = this.#kind(ref)
    this.#byRelated.set(resourceName(ref), kind)
    return kind
  }
}

const unique = (relations: Relation[]): Relation[] => [...new Set(relations)]
