import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'

/** A resource, and where its objects are. */
export interface Ref {
  group: string
  version: string
  resource: string
}

export interface Deletion {
  object: KubeObject
  ref: Ref
  /** Of the object when it was last seen before. */
  owner: string | undefined
}

export const ownerOf = ({ metadata: { ownerReferences = [] } }: KubeObject): string | undefined =>
  ownerReferences.find(({ controller }) => controller === true)?.uid

const keyOf = (ref: Ref): string => resourcePath(ref)

/** All objects of some resources as a watch shows them, and each that has gone. */
export class Watched implements AsyncDisposable {
  readonly deletions: Deletion[] = []
  readonly #objects = new Map<string, Map<string, KubeObject>>()
  readonly #stop = new AbortController()
  readonly #kube: KubeClient
  readonly #following: Promise<void>[] = []

  constructor(kube: KubeClient) {
    this.#kube = kube
  }

  async follow(ref: Ref): Promise<void> {
    if (this.#objects.has(keyOf(ref))) return
    const objects = new Map<string, KubeObject>()
    this.#objects.set(keyOf(ref), objects)
    const from = await this.#list(ref, objects)
    this.#following.push(this.#watch(ref, objects, from))
  }

  of(ref: Ref): KubeObject[] {
    return [...(this.#objects.get(keyOf(ref))?.values() ?? [])]
  }

  async #list(ref: Ref, objects: Map<string, KubeObject>): Promise<string> {
    const found = new Map<string, KubeObject>()
    let version = ''
    for await (const { items, resourceVersion } of this.#kube.list<KubeObject>(keyOf(ref))) {
      for (const one of items) found.set(one.metadata.uid ?? '', one)
      version = resourceVersion
    }
    for (const [uid, object] of objects) if (!found.has(uid)) this.#gone(ref, objects, object)
    for (const [uid, object] of found) objects.set(uid, object)
    return version
  }

  async #watch(ref: Ref, objects: Map<string, KubeObject>, version: string): Promise<void> {
    const { signal } = this.#stop
    for (let resourceVersion = version; !signal.aborted; ) {
      try {
        for await (const { type, object } of this.#kube.watch(keyOf(ref), { resourceVersion, signal })) {
          resourceVersion = object.metadata.resourceVersion ?? resourceVersion
          if (type === 'DELETED') this.#gone(ref, objects, object)
          else if (type !== 'BOOKMARK') objects.set(object.metadata.uid ?? '', object)
        }
      } catch {
        await sleep(200)
        if (!signal.aborted) resourceVersion = await this.#list(ref, objects).catch(() => resourceVersion)
      }
    }
  }

  #gone(ref: Ref, objects: Map<string, KubeObject>, object: KubeObject): void {
    const { uid = '' } = object.metadata
    this.deletions.push({ object, ref, owner: ownerOf(objects.get(uid) ?? object) })
    objects.delete(uid)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort()
    await Promise.all(this.#following)
  }
}
