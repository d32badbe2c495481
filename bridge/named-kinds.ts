import { setTimeout } from 'node:timers'
import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import type { StoredEvent } from '#events'
import { NameIndex, Wake } from '#primitives'
import { isKindNamed, isNamedInBody, type RelatedResource } from '#spec'
import { hasKey, type Reconciler } from './reconcilers.ts'
import { type InitialRead, type InitialReadDeps, InitialReads } from './relation.ts'
import type { Routes } from './routing.ts'

/** A field that changes back and forth must not cause a list each time. */
const STAYS_MS = 60_000
const UNCOVER_EVERY_MS = 60_000
const RETRY_MS = 1000

interface NamedKindsDeps extends InitialReadDeps {
  /** Called when primaries name another set of kinds. */
  changed: () => void
  /** Undefined: what Reconcilers ask for is not known yet. */
  routes: () => Routes | undefined
  /** Whether the API server refuses the watch, so that EVENTS may lack objects. */
  isRefused: (ref: ResourceRef, scope: string | undefined) => boolean
  /** For how long a kind stays watched that no primary names any more, in milliseconds. Left out: a minute. */
  staysMs?: number | undefined
}

/**
 * The related kinds that primaries name (`kindPath` of a relation). Such a kind is watched while a primary names it, and a
 * minute longer. A watch that has ended leaves its cursor, which would still promise that EVENTS has all objects, so the
 * Reconcilers are taken out of it: a dispatcher calls no function before the kind is listed again
 * (docs/decisions/0105-named-kinds.md).
 */
export class NamedKinds {
  readonly #deps: NamedKindsDeps
  /** By coverage ID. */
  #namings = new Map<string, Naming>()
  /** The timers of kinds that nothing names any more, by the name of the Reconciler and the resource. */
  readonly #left = new Map<string, NodeJS.Timeout>()
  /** The coverage IDs of all Reconcilers that were followed. */
  readonly #followed = new Set<string>()
  readonly #wake = new Wake()
  /** Whether the cursors are right that earlier processes have left. */
  #isClean = false

  constructor(deps: NamedKindsDeps) {
    this.#deps = deps
  }

  /** Whether all primaries are known that were in EVENTS. Until then, any kind may be named. */
  get isRead(): boolean {
    return [...this.#namings.values()].every(({ isRead }) => isRead)
  }

  /**
   * Whether the first watches may begin. A primary that names a kind again would else be published while the cursor that
   * an earlier process has left promises that EVENTS has all objects.
   */
  get isReady(): boolean {
    return this.isRead && (this.#isClean || this.#namings.size === 0)
  }

  /** Reads the primaries of Reconcilers that are new here, and forgets Reconcilers that are gone. */
  follow(reconcilers: readonly Reconciler[]): void {
    const reads = new InitialReads(this.#deps)
    const before = this.#namings
    this.#namings = new Map()
    for (const reconciler of reconcilers.filter(({ spec }) => spec.related.some(isOnDemand))) {
      const { coverageId } = reconciler
      const naming = before.get(coverageId) ?? this.#naming(reconciler, reads)
      this.#namings.set(coverageId, naming)
      this.#followed.add(coverageId)
    }
    for (const [id, naming] of before)
      if (!this.#namings.has(id))
        for (const kind of naming.kinds) if (naming.isNamed(kind)) this.#noteLeft(naming, kind)
    this.#wake.poke()
  }

  /** Must be called before the keys of the primary are enqueued. */
  observePrimary(ref: ResourceRef, key: string, object: KubeObject | undefined): void {
    for (const naming of this.#namings.values()) {
      if (resourceName(naming.reconciler.spec.for) !== resourceName(ref)) continue
      const { came, left } = naming.observe(key, object)
      for (const kind of left) this.#noteLeft(naming, kind)
      if (came) this.#deps.changed()
    }
  }

  /** Whether the related resource is to be watched for the Reconciler. One that is not followed may be named. */
  isWatched({ name, coverageId }: Reconciler, related: RelatedResource): boolean {
    const naming = this.#namings.get(coverageId)
    if (!isOnDemand(related) || naming === undefined || naming.isNamed(related)) return true
    return this.#left.has(leftName(name, related))
  }

  /** Returns the keys of the primaries that name the kind of the related resource. */
  keysOf({ coverageId }: Reconciler, related: ResourceRef): string[] {
    return this.#namings.get(coverageId)?.keysOf(related) ?? []
  }

  /** Notes that a watch has ended, or cannot go on. */
  watchEnded(): void {
    this.#wake.poke()
  }

  /** Takes Reconcilers out of the cursors of resources that are not watched for them, or whose watches cannot go on. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#wake.next(this.isReady ? UNCOVER_EVERY_MS : RETRY_MS, signal)
      if (signal.aborted || this.#followed.size === 0 || !this.isRead || this.#deps.routes() === undefined) continue
      try {
        await this.#uncover()
        if (this.#isClean) continue
        this.#isClean = true
        this.#deps.changed()
      } catch (error) {
        if (!signal.aborted) this.#deps.log.warn({ err: error }, 'cursors of kinds that nothing names stay as they are')
      }
    }
  }

  async #uncover(): Promise<void> {
    const { events, routes, isRefused } = this.#deps
    for await (const { ref, scope, sequence, ...cursor } of events.cursors()) {
      const wanted = routes()?.coverageIdsOf(ref)
      const isRight = (id: string) =>
        wanted?.includes(id) !== false && !(isRefused(ref, scope) && this.#namings.get(id)?.isOnlyNamed(ref))
      const covers = cursor.covers?.filter((id) => !this.#followed.has(id) || isRight(id))
      if (covers?.length !== cursor.covers?.length) await events.moveCursor(ref, scope, { ...cursor, covers }, sequence)
    }
  }

  #naming(reconciler: Reconciler, reads: InitialReads): Naming {
    const naming = new Naming(reconciler, reads)
    void naming.ready.then(() => this.#deps.changed())
    return naming
  }

  /** While primaries are being read, the kind may be named: it stays for as long again. */
  #noteLeft(naming: Naming, kind: ResourceRef): void {
    const { staysMs = STAYS_MS, changed } = this.#deps
    const name = leftName(naming.reconciler.name, kind)
    clearTimeout(this.#left.get(name))
    const leave = () => {
      if (!this.isRead) return this.#noteLeft(naming, kind)
      this.#left.delete(name)
      changed()
    }
    this.#left.set(name, setTimeout(leave, staysMs).unref())
  }
}

const isOnDemand = ({ kindPath }: RelatedResource): boolean => kindPath !== undefined

const leftName = (reconciler: string, ref: ResourceRef): string => `${reconciler} ${resourceName(ref)}`

/** The kinds that the primaries of one Reconciler name. */
class Naming {
  readonly reconciler: Reconciler
  readonly kinds: readonly RelatedResource[]
  readonly #index = new NameIndex()
  readonly #initialRead: InitialRead

  constructor(reconciler: Reconciler, reads: InitialReads) {
    this.reconciler = reconciler
    this.kinds = reconciler.spec.related.filter(isOnDemand)
    this.#initialRead = reads.of(reconciler.spec.for, 'primaries', (key, event) => this.#take(key, event))
  }

  get isRead(): boolean {
    return this.#initialRead.isRead
  }

  get ready(): Promise<void> {
    return this.#initialRead.ready
  }

  isNamed(related: ResourceRef): boolean {
    return this.#index.isNamed(resourceName(related))
  }

  /** Whether the Reconciler needs the resource only for primaries that name it. */
  isOnlyNamed(ref: ResourceRef): boolean {
    const { for: primary, owns, related, patches = [] } = this.reconciler.spec
    const needs = (one: ResourceRef) => resourceName(one) === resourceName(ref)
    return (
      this.kinds.some(needs) &&
      ![primary, ...owns, ...patches, ...related.filter((one) => !isOnDemand(one))].some(needs)
    )
  }

  keysOf(related: ResourceRef): string[] {
    return this.#index.keysOf(resourceName(related))
  }

  /** Returns whether a kind is named now that was not, and the kinds that nothing names any more. */
  observe(key: string, object: KubeObject | undefined): { came: boolean; left: RelatedResource[] } {
    this.#initialRead.noteObserved(key)
    const before = this.kinds.filter((kind) => this.isNamed(kind))
    this.#index.set(key, this.#namedBy(object))
    return {
      came: this.kinds.some((kind) => this.isNamed(kind) && !before.includes(kind)),
      left: before.filter((kind) => !this.isNamed(kind)),
    }
  }

  /** EVENTS may have only a reference to the primary. Then it may name each kind. */
  #take(key: string, { verb, object, referenceOnly }: StoredEvent): void {
    if (verb === 'deleted') this.#index.set(key, [])
    else if (referenceOnly && this.kinds.some(isNamedInBody)) this.#index.set(key, this.kinds.map(resourceName))
    else this.#index.set(key, this.#namedBy(object))
  }

  #namedBy(object: KubeObject | undefined): string[] {
    if (object === undefined || !hasKey(this.reconciler, object)) return []
    return this.kinds.filter((kind) => isKindNamed(kind, object)).map(resourceName)
  }
}
