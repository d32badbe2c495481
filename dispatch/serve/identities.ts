import type { KubeObject } from '#contracts'
import type { StoredEvent } from '#events'
import { identityOf } from '#spec'

interface Claim {
  name: string
  identity: string
  /** The creation time, RFC 3339. */
  since: string
}

/**
 * The Reconciler that may act under an identity: the oldest one that has it. Two Reconcilers with the same marks would
 * prune each other's objects.
 */
export class Identities {
  readonly #byName = new Map<string, Claim>()
  readonly #byIdentity = new Map<string, Set<Claim>>()
  #isComplete = false

  /** Notes that all existing Reconcilers are known. */
  complete(): void {
    this.#isComplete = true
  }

  /** Updates a Reconciler. If its identity has changed, returns the others that share the old or the new one. */
  update({ verb, object }: Pick<StoredEvent, 'verb' | 'object'>): string[] {
    const { name } = object.metadata
    const before = this.#byName.get(name)
    const after = verb === 'deleted' ? undefined : claimOf(object)
    if (before?.identity === after?.identity && before?.since === after?.since) return []
    if (before !== undefined) this.#remove(before)
    if (after !== undefined) this.#add(after)
    const shared = [before, after].flatMap((claim) => [...(this.#byIdentity.get(claim?.identity ?? '') ?? [])])
    return [...new Set(shared.map((claim) => claim.name))].filter((other) => other !== name)
  }

  /** Returns the Reconciler that may act under the identity of this one. Undefined: not known yet. */
  holderOf(name: string): string | undefined {
    const claim = this.#byName.get(name)
    if (claim === undefined || !this.#isComplete) return undefined
    const [first] = [...(this.#byIdentity.get(claim.identity) ?? [])].sort(byAge)
    return first?.name
  }

  #add(claim: Claim): void {
    this.#byName.set(claim.name, claim)
    const sharing = this.#byIdentity.get(claim.identity) ?? new Set()
    this.#byIdentity.set(claim.identity, sharing.add(claim))
  }

  #remove(claim: Claim): void {
    this.#byName.delete(claim.name)
    const sharing = this.#byIdentity.get(claim.identity)
    sharing?.delete(claim)
    if (sharing?.size === 0) this.#byIdentity.delete(claim.identity)
  }
}

function claimOf({ metadata, spec }: KubeObject): Claim {
  const { name, creationTimestamp: since = '' } = metadata
  return { name, identity: identityOf(name, spec ?? {}), since }
}

const byAge = (a: Claim, b: Claim): number => a.since.localeCompare(b.since) || a.name.localeCompare(b.name)
