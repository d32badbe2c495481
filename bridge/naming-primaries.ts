import type { KubeObject, ResourceRef } from '#contracts'
import { parseKey, type StoredEvent } from '#events'
import { isNamedInBody, namesAt, namespacesAt, type RelatedResource } from '#spec'
import { NameIndex } from './name-index.ts'
import { Recall, type RecallDeps } from './recall.ts'
import type { Change } from './routing.ts'

/** Which primaries name which objects, or which namespaces of them, in their fields. */
export class NamingPrimaries {
  readonly #related: RelatedResource
  readonly #names = new NameIndex()
  readonly #namespaces = new NameIndex()
  /** Their fields are not known: EVENTS has only a reference to them. They may name anything. */
  readonly #unread = new Set<string>()
  /** Of the keys that have been enqueued since, for what they name. */
  readonly #settled = new Set<string>()
  readonly #recall: Recall

  constructor(primaries: ResourceRef, related: RelatedResource, deps: RecallDeps) {
    this.#related = related
    this.#recall = new Recall(primaries, () => (key, event) => this.#take(key, event), deps)
  }

  get ready(): Promise<void> {
    return this.#recall.ready
  }

  learn(key: string, object: KubeObject | undefined): void {
    this.#recall.learned(key)
    if (this.#set(key, object)) this.#settled.delete(key)
  }

  /** The key was enqueued, or a run of it that is under way knows of the change. */
  settle(key: string, object: KubeObject | undefined): void {
    if (object === undefined) this.#settled.delete(key)
    else this.#settled.add(key)
  }

  /** False also where this bridge has not enqueued the key yet. */
  isSettled(key: string): boolean {
    return this.#settled.has(key)
  }

  /** The keys of the primaries that name the object, or its namespace. */
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
    if (isPresent && referenceOnly && isNamedInBody(this.#related)) this.#unread.add(key)
  }

  /** Returns whether the key has named something else. */
  #set(key: string, object: KubeObject | undefined): boolean {
    const { byName, namespacePath } = this.#related
    const names = object === undefined || byName === undefined ? [] : namesAt(object, byName)
    const namespaces = object === undefined || namespacePath === undefined ? [] : namespacesAt(object, namespacePath)
    const changes = [this.#unread.delete(key), this.#names.set(key, names), this.#namespaces.set(key, namespaces)]
    return changes.includes(true)
  }
}
