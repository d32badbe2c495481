import type { KubeObject } from '#contracts'

/** Bytes of JSON. */
const CAPACITY = 32 * 1024 * 1024

export interface CachedObject {
  object: KubeObject
  /** As JSON text. */
  size: number
}

/** Keeps the objects that were added last, up to its capacity. One for the whole process. */
export class ObjectCache {
  readonly #known = new Map<string, CachedObject>()
  #size = 0

  get(key: string): CachedObject | undefined {
    return this.#known.get(key)
  }

  set(key: string, known: CachedObject): void {
    this.#delete(key)
    this.#known.set(key, known)
    this.#size += known.size
    for (const oldest of this.#known.keys()) {
      if (this.#size <= CAPACITY) return
      this.#delete(oldest)
    }
  }

  #delete(key: string): void {
    this.#size -= this.#known.get(key)?.size ?? 0
    this.#known.delete(key)
  }
}
