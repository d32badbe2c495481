import { BoundedMap } from '#primitives/bounded-map'
import { metadataTarget } from './metadata.ts'
import { statusTarget } from './plan.ts'
import type { Settled } from './settled.ts'
import type { Family } from './world.ts'

const CAPACITY = 20_000

/** Remembers the writes that changed nothing, for all runs of a process. */
export class SettledWrites {
  readonly #known = new BoundedMap<string, string>(CAPACITY)

  remember(target: string, value: string): void {
    this.#known.set(target, value)
  }

  /** Returns the known writes for one object and its owned objects. */
  of({ object, owned }: Family): Settled {
    const targets = [
      statusTarget(object),
      metadataTarget(object),
      ...owned.map((child) => child.object.metadata.uid ?? ''),
    ]
    return Object.fromEntries(
      targets.flatMap((target) => {
        const value = this.#known.get(target)
        return value === undefined ? [] : [[target, value]]
      }),
    )
  }
}
