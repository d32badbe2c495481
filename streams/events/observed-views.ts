import type { Allowance, Observed, StoredObject, View } from './types.ts'

/** The object in the message that counts. */
export interface KnownObject {
  identity: string
  /** The subject without the installation's prefix. */
  subject: string
  sequence: number
  /** Undefined: the object was deleted. */
  object: StoredObject | undefined
  bytes: number
}

/** The result of a put of this process for an object. */
export type PutNews =
  | { kind: 'stored'; known: KnownObject }
  /** The message with this sequence counts. */
  | { kind: 'kept'; sequence: number }
  | { kind: 'unclear' }

export interface ViewFilters {
  primary: string
  owned: readonly string[]
  /** The filter of an object whose change ends the view, and the known sequence of that object. */
  news: { filter: string; known: number } | undefined
}

/** The views of a process. Each view is updated by every put() of this process that concerns it. */
export class ObservedViews {
  readonly #byFilter = new Map<string, Set<ObservedView>>()

  /** Opens a view. Call before EVENTS is read for it, so that the view includes every put() that happens meanwhile. */
  open(filters: ViewFilters): ObservedView {
    const view: ObservedView = new ObservedView(filters, () => {
      for (const filter of view.filters) this.#remove(filter, view)
    })
    for (const filter of view.filters) this.#byFilter.set(filter, (this.#byFilter.get(filter) ?? new Set()).add(view))
    return view
  }

  noted(identity: string, subject: string, news: PutNews): void {
    if (this.#byFilter.size === 0) return
    for (const filter of [identity, ...childrenFiltersOf(subject)])
      for (const view of this.#byFilter.get(filter) ?? []) view.observe(identity, news)
  }

  /** Closes all views, because other processes may have written. */
  end(): void {
    for (const views of this.#byFilter.values()) for (const view of views) view.close()
  }

  #remove(filter: string, view: ObservedView): void {
    const views = this.#byFilter.get(filter)
    if (views?.delete(view) && views.size === 0) this.#byFilter.delete(filter)
  }
}

/** The observed objects, updated with the objects that this process has stored since. */
export class ObservedView implements View {
  readonly #filters: ViewFilters
  readonly #objects = new Map<string, KnownObject>()
  readonly #onClose: () => void
  /** The news that arrived before EVENTS was read. Undefined after that. */
  #meanwhile: [identity: string, news: PutNews][] | undefined = []
  #isOpen = true

  constructor(filters: ViewFilters, onClose: () => void) {
    this.#filters = filters
    this.#onClose = onClose
  }

  /** Sets the objects that were read. */
  begin(objects: readonly KnownObject[]): void {
    for (const known of objects) this.#objects.set(known.identity, known)
    const meanwhile = this.#meanwhile ?? []
    this.#meanwhile = undefined
    for (const [identity, news] of meanwhile) this.observe(identity, news)
  }

  observe(identity: string, news: PutNews): void {
    if (this.#meanwhile) return void this.#meanwhile.push([identity, news])
    if (!this.#follows(identity, news)) this.close()
  }

  get filters(): string[] {
    const { primary, owned, news } = this.#filters
    return [primary, ...owned, ...(news ? [news.filter] : [])]
  }

  observed(allowance?: Allowance): Observed | undefined {
    if (!this.#isOpen || this.#meanwhile) return undefined
    const objects = [...this.#objects.values()].sort((one, other) => one.sequence - other.sequence)
    const of = (matches: (known: KnownObject) => boolean) =>
      objects.filter(matches).flatMap(({ object }) => object ?? [])
    for (const { object, subject, bytes } of objects) if (object) allowance?.note(subject, bytes)
    return {
      primary: of(({ identity }) => identity === this.#filters.primary)[0],
      owned: this.#filters.owned.map((filter) => of(({ subject }) => childrenFiltersOf(subject).includes(filter))),
      related: [],
      news: undefined,
    }
  }

  close(): void {
    this.#isOpen = false
    this.#objects.clear()
    this.#onClose()
  }

  /** Applies news. False: the present state is not known any more. */
  #follows(identity: string, news: PutNews): boolean {
    if (news.kind === 'unclear') return false
    const before = this.#sequenceOf(identity)
    if (news.kind === 'kept') return news.sequence === before
    if (identity === this.#filters.news?.filter) return false
    if (before === undefined || before < news.known.sequence) this.#objects.set(identity, news.known)
    return true
  }

  #sequenceOf(identity: string): number | undefined {
    const { news } = this.#filters
    return identity === news?.filter ? news.known : this.#objects.get(identity)?.sequence
  }
}

/** Returns the filters under which an owner finds its children: in the namespace, and in all namespaces. */
function childrenFiltersOf(subject: string): [inNamespace: string, inAll: string] {
  const [k8s, group, version, resource, namespace, owner] = subject.split('.')
  const filterIn = (one: string | undefined) => [k8s, group, version, resource, one, owner, '*'].join('.')
  return [filterIn(namespace), filterIn('*')]
}
