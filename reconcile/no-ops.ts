import type { KubeObject } from '#contracts'
import { BoundedMap } from '#primitives/bounded-map'
import type { World } from './world.ts'

/**
 * Writes that are known to change nothing: `<resourceVersion> <fingerprint>` by target. The target is an object's uid,
 * followed by `/status`, `/metadata` or `/act` for these writes. This is an optimisation: a missing entry costs one
 * request without effect.
 */
export type NoOps = Readonly<Record<string, string>>

export const statusTarget = ({ metadata }: KubeObject): string => `${metadata.uid}/status`

export const metadataTarget = ({ metadata }: KubeObject): string => `${metadata.uid}/metadata`

/** `status`: the fields are those of the status. */
export const fieldsTarget = ({ metadata }: KubeObject, { status }: { status?: true | undefined }): string =>
  `${metadata.uid}/fields${status ? '/status' : ''}`

/** The last act on an object for a primary: see Known in acts.ts. */
export const actTarget = (primary: KubeObject, { metadata }: KubeObject): string =>
  `${metadata.uid}/act/${primary.metadata.uid}`

const CAPACITY = 20_000

/** Remembers the writes that changed nothing, for all runs of a process. */
export class NoOpWrites {
  readonly #known = new BoundedMap<string, string>(CAPACITY)

  remember(target: string, value: string): void {
    this.#known.set(target, value)
  }

  /**
   * Returns the known writes for one object, its owned objects, and the objects whose fields it sets. `isActing`: those of
   * its related objects too.
   */
  of({ object, owned, related, patched }: World, isActing: boolean): NoOps {
    const targets = [
      statusTarget(object),
      metadataTarget(object),
      ...owned.map((child) => child.object.metadata.uid ?? ''),
      ...patched.flatMap((other) => [fieldsTarget(other, {}), fieldsTarget(other, { status: true })]),
      ...(isActing
        ? [object, ...owned.map((child) => child.object), ...related].map((one) => actTarget(object, one))
        : []),
    ]
    return Object.fromEntries(
      targets.flatMap((target) => {
        const value = this.#known.get(target)
        return value === undefined ? [] : [[target, value]]
      }),
    )
  }
}
