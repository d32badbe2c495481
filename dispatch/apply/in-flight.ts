import { type KubeObject, type ResourceRef, resourceName } from '#contracts'

/** Writes whose results EVENTS does not have yet: the watch may tell of them before the API server has answered. */
export class InFlight {
  readonly #traces = new Map<string, string>()

  begin(ref: ResourceRef, object: KubeObject, traceparent: string): void {
    this.#traces.set(targetOf(ref, object), traceparent)
  }

  end(ref: ResourceRef, object: KubeObject): void {
    this.#traces.delete(targetOf(ref, object))
  }

  traceOf(ref: ResourceRef, object: KubeObject): string | undefined {
    return this.#traces.get(targetOf(ref, object))
  }
}

const targetOf = (ref: ResourceRef, { metadata }: KubeObject): string =>
  `${resourceName(ref)} ${metadata.namespace ?? ''} ${metadata.name}`
