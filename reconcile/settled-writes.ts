import { BoundedMap } from '#primitives/bounded-map'
import { metadataTarget } from './metadata.ts'
import { statusTarget } from './plan.ts'
import type { Settled } from './settled.ts'
import type { Family } from './world.ts'

const CAPACITY = 20_000

/** What the runs of a process have learned of writes that change nothing. */
export class SettledWrites {
  readonly #known = new BoundedMap<string, string>(CAPACITY)

  remember(target: string, value: string): void {
    this.#known.set(target, value)
  }

  /** Of one object and what it controls. */
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
