import { type KubeObject, type ResourceRef, resourceName } from '#contracts'

interface Write {
  traceparent: string
  ended: PromiseWithResolvers<void>
}

/** Writes whose results EVENTS does not have yet. The watch may report them before the API server has answered. */
export class InFlight {
  readonly #writes = new Map<string, Write>()

  begin(ref: ResourceRef, object: KubeObject, traceparent: string): void {
    this.end(ref, object)
    this.#writes.set(targetOf(ref, object), { traceparent, ended: Promise.withResolvers() })
  }

  end(ref: ResourceRef, object: KubeObject): void {
    const target = targetOf(ref, object)
    this.#writes.get(target)?.ended.resolve()
    this.#writes.delete(target)
  }

  traceOf(ref: ResourceRef, object: KubeObject): string | undefined {
    return this.#writes.get(targetOf(ref, object))?.traceparent
  }

  /** Resolves when EVENTS has the result, or when there is none. Undefined: the object is not being written. */
  ended(ref: ResourceRef, object: KubeObject): Promise<void> | undefined {
    return this.#writes.get(targetOf(ref, object))?.ended.promise
  }
}

const targetOf = (ref: ResourceRef, { metadata }: KubeObject): string =>
  `${resourceName(ref)} ${metadata.namespace ?? ''} ${metadata.name}`
