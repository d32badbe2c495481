import { apiVersionOf, type ReconcilerSpec, type ResourceRef } from '#contracts'
import type { EventStore } from '#events'
import type { Consequence } from './consequence.ts'
import type { DesiredInput } from './outcome.ts'
import { type Contents, scrubbedError, scrubber } from './scrub.ts'
import type { World } from './world.ts'

type Declared = ResourceRef & { kind: string }

/** What a run has seen and made of kinds whose contents must not travel: its failures must not tell of them either. */
export class Confidences {
  readonly #kinds: readonly Declared[]
  readonly #objects: Contents[] = []

  constructor({ for: primary, owns, related }: ReconcilerSpec, events: Pick<EventStore, 'isReferenceOnly'>) {
    this.#kinds = [primary, ...owns, ...related].filter((resource) => events.isReferenceOnly(resource))
  }

  noteObserved({ object, owned, related }: World): void {
    this.#note([object, ...owned.map((child) => child.object), ...related])
  }

  noteDesired(apply: readonly DesiredInput[] = []): void {
    this.#note(apply)
  }

  #note(objects: readonly Contents[]): void {
    if (this.#kinds.length > 0) this.#objects.push(...objects.filter((object) => this.#isOne(object)))
  }

  #isOne({ apiVersion, kind }: Contents): boolean {
    return this.#kinds.some((resource) => resource.kind === kind && apiVersionOf(resource) === apiVersion)
  }

  /** The consequence of a failure, and how a log may show it. */
  withheldFrom(error: unknown, { finish, report }: Consequence): Consequence & { shown: unknown } {
    if (this.#objects.length === 0) return { finish, report, shown: error }
    const scrub = scrubber(this.#objects)
    return {
      finish: 'message' in finish ? { ...finish, message: scrub(finish.message) } : finish,
      report: report && { ...report, message: scrub(report.message) },
      shown: scrubbedError(error, scrub),
    }
  }
}
