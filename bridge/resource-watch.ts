import { setTimeout } from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'
import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { keyOf, type Verb } from '#events'
import { resourcePath, type WatchEvent } from '#kube'
import { unlessAborted } from './abort.ts'
import { Checkpoint } from './checkpoint.ts'
import type { CoveredUpTo } from './compare.ts'
import { CursorWriter, type Position } from './cursor-writer.ts'
import { classify } from './failure.ts'
import type { Publisher } from './publisher.ts'
import { type Found, relist } from './relist.ts'
import type { Routes } from './routing.ts'
import type { BridgeOptions, ResourceStatus } from './types.ts'
import { type Input, type Listing, type Relist, type State, step, type Watching } from './watch-state.ts'
import { Window } from './window.ts'

/** Sees the objects of a resource as the API server tells them, stored or not. */
export interface Onlooker {
  /** All that there are. */
  listed(objects: KubeObject[]): void
  changed(verb: Verb, object: KubeObject): void
}

export interface ResourceWatchDeps extends Pick<BridgeOptions, 'kube' | 'events' | 'log' | 'observer'> {
  publisher: Publisher
  routes: () => Routes
  incarnation: () => Promise<string | undefined>
  /** With one, everything is listed at the start, so that it knows of every object. */
  onlooker?: Onlooker | undefined
  /** The state has changed. */
  moved: (state: State) => void
  /** All that exists has become known to every Reconciler that asks for it. */
  synced: () => void
  now: () => Date
  random: () => number
}

const UNCONFIRMED_AT_MOST = 128
/** A stop waits so long for what was read to be confirmed. */
const GRACE_MS = 1500
const VERBS = { ADDED: 'added', MODIFIED: 'modified', DELETED: 'deleted' } as const

/** Lists and watches one resource for ever: everything it reads is published, and a cursor says how far that is done. */
export class ResourceWatch {
  readonly #ref: ResourceRef
  readonly #deps: ResourceWatchDeps
  readonly #window = new Window(UNCONFIRMED_AT_MOST)
  readonly #checkpoint = new Checkpoint<Position>()
  readonly #cursor: CursorWriter
  readonly #publishing = new AbortController()
  /** Aborted to leave a watch or a wait when a list is demanded. */
  #interrupt = new AbortController()
  #demand: Relist | undefined
  #state: State = { phase: 'starting', attempt: 0 }
  #since: Date
  #lastEventAt: Date | undefined
  /** What a position of this watch says besides its resourceVersion. */
  #covers: ReadonlySet<string> = new Set()
  #incarnation: string | undefined
  #wasSynced = false
  /** The Reconcilers that a list under way will cover. */
  #listingFor: ReadonlySet<string> = new Set()

  constructor(ref: ResourceRef, deps: ResourceWatchDeps) {
    this.#ref = ref
    this.#deps = deps
    this.#cursor = new CursorWriter(ref, this.#checkpoint, deps)
    this.#since = deps.now()
  }

  status(): ResourceStatus {
    const { phase } = this.#state
    return {
      resource: resourceName(this.#ref),
      phase,
      since: this.#since,
      synced: this.#isSynced(),
      covers: this.#covered(),
      resourceVersion: this.#checkpoint.safe?.resourceVersion,
      lastEventAt: this.#lastEventAt,
      unconfirmed: this.#window.active,
      failure: this.#state.phase === 'waiting' ? this.#state.failure : undefined,
    }
  }

  /** The routes have changed: a Reconciler that is new here is owed a run for each object that exists. */
  reroute(): void {
    const tokens = this.#tokens()
    this.#covers = new Set(tokens.filter((token) => this.#covers.has(token)))
    if (tokens.some((token) => !this.#covers.has(token) && !this.#listingFor.has(token))) this.demand('routes')
  }

  /** Lists at the next opportunity. */
  demand(because: Relist): void {
    if (because === 'store-restarted') this.#covers = new Set()
    this.#wasSynced = false
    this.#demand = because
    this.#interrupt.abort()
  }

  async run(signal: AbortSignal): Promise<void> {
    void this.#cursor.run(signal)
    const giveUp = () => setTimeout(() => this.#publishing.abort(), GRACE_MS).unref()
    signal.addEventListener('abort', giveUp, { once: true })
    while (!signal.aborted) {
      const input = await this.#perform(this.#state, signal).catch((error: unknown) => {
        if (!signal.aborted) throw error
      })
      if (input) this.#enter(step(this.#state, input, this.#deps.random()))
    }
    await this.#window.idle()
    await this.#writeLastCursor()
  }

  async #perform(state: State, signal: AbortSignal): Promise<Input> {
    const because = this.#demand
    if (because !== undefined && state.phase !== 'starting') {
      this.#demand = undefined
      this.#interrupt = new AbortController()
      return { type: 'demanded', because }
    }
    switch (state.phase) {
      case 'starting':
        return this.#attempt(signal, () => this.#resume())
      case 'listing':
        return this.#attempt(signal, () => this.#list(state, signal))
      case 'watching':
        return this.#watch(state, AbortSignal.any([signal, this.#interrupt.signal]))
      case 'waiting':
        await sleep(state.ms, undefined, { signal: AbortSignal.any([signal, this.#interrupt.signal]) }).catch(() => {})
        return { type: 'waited' }
    }
  }

  async #attempt(signal: AbortSignal, act: () => Promise<Input>): Promise<Input> {
    try {
      return await unlessAborted(act(), signal)
    } catch (error) {
      signal.throwIfAborted()
      return { type: 'failed', failure: classify(error), openMs: 0 }
    }
  }

  async #resume(): Promise<Input> {
    const tokens = this.#tokens()
    this.#incarnation = await this.#deps.incarnation()
    const cursor = await this.#cursor.read()
    const isSameLife = cursor?.incarnation === this.#incarnation
    const covered = new Set(isSameLife ? cursor?.covers : [])
    this.#covers = new Set(tokens.filter((token) => covered.has(token)))
    return { type: 'resumed', resourceVersion: cursor?.resourceVersion, relist: this.#mustList(isSameLife, tokens) }
  }

  #mustList(isSameLife: boolean, tokens: string[]): Relist | undefined {
    if (!isSameLife) return 'store-restarted'
    if (this.#covers.size < tokens.length) return 'routes'
    return this.#deps.onlooker ? 'initial' : undefined
  }

  async #list({ because }: Listing, signal: AbortSignal): Promise<Input> {
    // What was read before has to be in EVENTS before it is compared, and the cursor as far as it can be.
    await this.#window.idle()
    await this.#cursor.flush()
    const { kube, events, onlooker, observer, log } = this.#deps
    const incarnation = await this.#deps.incarnation()
    const routes = this.#deps.routes()
    const tokens = new Set(routes.tokensOf(this.#ref))
    this.#listingFor = tokens
    const objects: KubeObject[] = []
    const plan = { ref: this.#ref, routes, coveredUpTo: this.#coveredUpTo(incarnation), covers: this.#covers, signal }
    const report = await relist(plan, {
      kube,
      events,
      publish: (found) => this.#publish(found, routes, 'low'),
      listed: onlooker && ((object) => objects.push(object)),
    }).finally(() => {
      this.#listingFor = new Set()
    })
    this.#covers = new Set(this.#tokens().filter((token) => tokens.has(token)))
    this.#incarnation = incarnation
    this.#checkpoint.mark(this.#position(report.resourceVersion))
    this.#noteProgress()
    onlooker?.listed(objects)
    const resource = resourceName(this.#ref)
    observer?.relisted?.({ ...report, resource, because })
    log.info({ resource, because, ...report }, 'listed')
    return { type: 'listed', resourceVersion: report.resourceVersion }
  }

  async #watch(state: Watching, signal: AbortSignal): Promise<Input> {
    const began = performance.now()
    const timeoutSeconds = 240 + Math.floor(this.#deps.random() * 100)
    let { resourceVersion } = state
    let events = 0
    const openMs = () => performance.now() - began
    try {
      const options = { resourceVersion, timeoutSeconds, signal }
      for await (const event of this.#deps.kube.watch<KubeObject>(resourcePath(this.#ref), options)) {
        events++
        resourceVersion = event.object.metadata.resourceVersion ?? resourceVersion
        await this.#take(event, resourceVersion)
      }
      return { type: 'ended', resourceVersion, events, openMs: openMs() }
    } catch (error) {
      if (signal.aborted) return { type: 'ended', resourceVersion, events: 1, openMs: openMs() }
      return { type: 'failed', failure: classify(error), resourceVersion, openMs: openMs() }
    }
  }

  async #take(event: WatchEvent<KubeObject>, resourceVersion: string): Promise<void> {
    this.#lastEventAt = this.#deps.now()
    if (event.type === 'BOOKMARK') {
      this.#checkpoint.mark(this.#position(resourceVersion))
      return this.#noteProgress()
    }
    const { object } = event
    const verb = VERBS[event.type]
    this.#deps.observer?.seen?.({ ref: this.#ref, verb, object })
    this.#deps.onlooker?.changed(verb, object)
    const key = keyOf(object.metadata.namespace, object.metadata.name)
    await this.#publish({ key, news: { verb, object } }, this.#deps.routes(), 'high', this.#position(resourceVersion))
  }

  async #publish({ key, ...found }: Found, routes: Routes, lane: 'high' | 'low', position?: Position): Promise<void> {
    const confirm = this.#checkpoint.begin(position)
    await this.#window.admit(key, async () => {
      try {
        await this.#deps.publisher.publish({ ref: this.#ref, routes, lane, ...found }, this.#publishing.signal)
        confirm()
        this.#noteProgress()
      } catch (error) {
        // A stop: the cursor stays before this change, and the next start repeats it.
        if (this.#publishing.signal.aborted) return
        this.#deps.log.error({ err: error, resource: resourceName(this.#ref), key }, 'the cursor cannot pass a change')
      }
    })
  }

  async #writeLastCursor(): Promise<void> {
    const log = (error: unknown) =>
      this.#deps.log.warn({ err: error, resource: resourceName(this.#ref) }, 'the last cursor could not be stored')
    await Promise.race([this.#cursor.flush().catch(log), sleep(GRACE_MS, undefined, { ref: false })])
  }

  #noteProgress(): void {
    this.#cursor.poke()
    if (this.#wasSynced || !this.#isSynced()) return
    this.#wasSynced = true
    // Whoever waits for this cursor need not wait for its turn. What fails here, the writer tries again.
    this.#cursor.flush().catch(() => {})
    this.#deps.synced()
  }

  #position(resourceVersion: string): Position {
    const covers = [...this.#covers]
    return { resourceVersion, covers, ...(this.#incarnation !== undefined && { incarnation: this.#incarnation }) }
  }

  /** After a loss in NATS not even the cursor proves that a key was enqueued. */
  #coveredUpTo(incarnation: string | undefined): CoveredUpTo | undefined {
    const { written } = this.#cursor
    return written?.incarnation === incarnation ? written : undefined
  }

  #tokens(): string[] {
    return this.#deps.routes().tokensOf(this.#ref)
  }

  #isSynced(): boolean {
    const isListed = this.#checkpoint.safe !== undefined || this.#cursor.written !== undefined
    const covered = new Set(this.#covered())
    return isListed && this.#tokens().every((token) => covered.has(token))
  }

  /** For whom everything is done: as far as this process has come, else as the cursor that it began from says. */
  #covered(): readonly string[] {
    return this.#checkpoint.safe?.covers ?? [...this.#covers]
  }

  #enter(state: State): void {
    if (state.phase !== this.#state.phase) this.#since = this.#deps.now()
    this.#state = state
    this.#deps.moved(state)
  }
}
