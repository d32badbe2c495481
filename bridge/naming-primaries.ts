import type { KubeObject } from '#contracts'
import { parseKey, type StoredEvent } from '#events'
import { isNamedInBody, namesAt, namespacesAt, type RelatedResource, selectionOf } from '#spec'
import { NameIndex } from './name-index.ts'
import { Recall, type RecallDeps } from './recall.ts'
import { hasKey, type Reconciler } from './reconcilers.ts'
import type { Change } from './routing.ts'

/** The primaries of a Reconciler that name objects, or namespaces of objects, in their fields. */
export class NamingPrimaries {
  readonly #reconciler: Reconciler
  readonly #related: RelatedResource
  readonly #names = new NameIndex()
  readonly #namespaces = new NameIndex()
  /** Primaries whose fields are not known, because EVENTS has only a reference to them. They may name any object. */
  readonly #unread = new Set<string>()
  /** Keys that were enqueued after the primary began to name its present objects. */
  readonly #settled = new Set<string>()
  readonly #recall: Recall

  constructor(reconciler: Reconciler, related: RelatedResource, deps: RecallDeps) {
    this.#reconciler = reconciler
    this.#related = related
    this.#recall = new Recall(reconciler.spec.for, () => (key, event) => this.#take(key, event), deps)
  }

  get ready(): Promise<void> {
    return this.#recall.ready
  }

  learn(key: string, object: KubeObject | undefined): void {
    this.#recall.learned(key)
    if (this.#set(key, object)) this.#settled.delete(key)
  }

  /** Notes that the key was enqueued, or that an active run of it knows of the change. */
  settle(key: string, object: KubeObject | undefined): void {
    if (object === undefined) this.#settled.delete(key)
    else this.#settled.add(key)
  }

  /** Returns false also if this bridge has not enqueued the key yet. */
  isSettled(key: string): boolean {
    return this.#settled.has(key)
  }

  /** Returns the keys of the primaries that name the object, or its namespace. */
  keysOf({ namespace, name }: Pick<Change, 'namespace' | 'name'>): string[] {
    const { byName, namespacePath, within } = this.#related
    if (namespacePath === undefined) {
      const keys = [...this.#names.keysOf(name), ...this.#unread]
      const isAnywhere = within === 'Cluster' || namespace === undefined
      return isAnywhere ? keys : keys.filter((key) => [namespace, undefined].includes(parseKey(key).namespace))
    }
    if (namespace === undefined) return []
    const here = this.#namespaces.keysOf(namespace)
    const keys = byName === undefined ? here : here.filter((key) => this.#names.has(name, key))
    return [...keys, ...this.#unread]
  }

  #take(key: string, { verb, object, referenceOnly }: StoredEvent): void {
    const isPresent = verb !== 'deleted'
    this.#set(key, isPresent ? object : undefined)
    if (isPresent && referenceOnly && isNamedInBody(this.#related) && this.#maySelect(object)) this.#unread.add(key)
  }

  /** Whether a reference may be to an object that is selected. Its fields are not known. */
  #maySelect(reference: KubeObject): boolean {
    return selectionOf({ ...this.#reconciler.spec.for, fieldSelector: undefined })(reference)
  }

  /** Sets the names of a key. Returns whether they have changed. An object that is not selected names nothing. */
  #set(key: string, found: KubeObject | undefined): boolean {
    const object = found && hasKey(this.#reconciler, found) ? found : undefined
    const { byName, namespacePath } = this.#related
    const names = object === undefined || byName === undefined ? [] : namesAt(object, byName)
    const namespaces = object === undefined || namespacePath === undefined ? [] : namespacesAt(object, namespacePath)
    const changes = [this.#unread.delete(key), this.#names.set(key, names), this.#namespaces.set(key, namespaces)]
    return changes.includes(true)
  }
}
