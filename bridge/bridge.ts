import { setTimeout as sleep } from 'node:timers/promises'
import { type KubeObject, RECONCILERS, type ResourceRef, resourceName } from '#contracts'
import { ConditionWriter } from './condition-writer.ts'
import { refusedCondition, type SyncedCondition, servedCondition } from './conditions.ts'
import { Publisher } from './publisher.ts'
import { Registry } from './registry.ts'
import { ResourceWatch } from './resource-watch.ts'
import { Routes } from './routing.ts'
import { Scopes } from './scopes.ts'
import type { Bridge, BridgeOptions, BridgeStatus, ResourceStatus } from './types.ts'
import type { State } from './watch-state.ts'

/** Any number of bridges may run side by side: all of them publish, and what is there already is recognised. */
export const createBridge = (options: BridgeOptions): Bridge => new WatchingBridge(options)

interface RunningWatch {
  watch: ResourceWatch
  stop: AbortController
  done: Promise<void>
}

const ASK_FOR_INCARNATION_EVERY_MS = 5000

class WatchingBridge implements Bridge {
  readonly #options: BridgeOptions
  readonly #scopes: Scopes
  readonly #publisher: Publisher
  readonly #registry: Registry
  readonly #conditions: ConditionWriter
  readonly #watches = new Map<string, RunningWatch>()
  readonly #stopping = new Set<Promise<void>>()
  #routes = new Routes([])

  constructor(options: BridgeOptions) {
    this.#options = options
    this.#scopes = new Scopes(options.kube)
    this.#publisher = new Publisher({ ...options, scopes: this.#scopes })
    this.#registry = new Registry(options.log, () => this.#reroute())
    this.#conditions = new ConditionWriter({
      kube: options.kube,
      log: options.log,
      now: this.#now,
      conditions: () => this.#currentConditions(),
    })
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#start(RECONCILERS)
    const sideJobs = [this.#conditions.run(signal), this.#noticeRestarts(signal)]
    await new Promise((resolve) => {
      if (signal.aborted) resolve(undefined)
      else signal.addEventListener('abort', resolve, { once: true })
    })
    for (const name of this.#watches.keys()) this.#stop(name)
    await Promise.all([...this.#stopping, ...sideJobs])
  }

  status(): BridgeStatus {
    return {
      resources: [...this.#watches.values()].map(({ watch }) => watch.status()),
      refused: this.#registry.refused.map(({ name, reason, message }) => ({ name, reason, message })),
    }
  }

  /** The Reconcilers have changed: exactly the resources that they name are watched from now on. */
  #reroute(): void {
    this.#routes = new Routes(this.#registry.served)
    const wanted = new Map([RECONCILERS, ...this.#routes.refs].map((ref) => [resourceName(ref), ref]))
    for (const name of this.#watches.keys()) if (!wanted.has(name)) this.#stop(name)
    for (const [name, ref] of wanted) {
      const running = this.#watches.get(name)
      if (running) running.watch.reroute()
      else this.#start(ref)
    }
    this.#conditions.poke()
  }

  #start(ref: ResourceRef): void {
    const name = resourceName(ref)
    const stop = new AbortController()
    const { kube, events, log, observer, incarnation, random = Math.random } = this.#options
    const watch = new ResourceWatch(ref, {
      kube,
      events,
      log,
      observer,
      publisher: this.#publisher,
      routes: () => this.#routes,
      incarnation: async () => incarnation?.(),
      onlooker: name === resourceName(RECONCILERS) ? this.#registry : undefined,
      moved: (state) => this.#noteMove(ref, state),
      synced: () => this.#conditions.poke(),
      now: this.#now,
      random,
    })
    this.#watches.set(name, { watch, stop, done: watch.run(stop.signal) })
  }

  #stop(name: string): void {
    const running = this.#watches.get(name)
    if (!running) return
    this.#watches.delete(name)
    running.stop.abort()
    const done = running.done.finally(() => this.#stopping.delete(done))
    this.#stopping.add(done)
  }

  #noteMove(ref: ResourceRef, state: State): void {
    this.#conditions.poke()
    if (state.phase !== 'waiting') return
    const { ms, failure } = state
    const resource = resourceName(ref)
    if (failure.kind === 'absent') this.#scopes.forget(ref)
    this.#options.observer?.interrupted?.({ resource, failure: failure.kind })
    this.#options.log.warn({ resource, reason: failure.kind, detail: failure.message, ms }, 'a watch waits to go on')
  }

  /** A single NATS server that was started anew may have lost what it had confirmed last. */
  async #noticeRestarts(signal: AbortSignal): Promise<void> {
    const { incarnation, log } = this.#options
    if (!incarnation) return
    let known: string | undefined
    while (!signal.aborted) {
      const current = await incarnation().catch(() => known)
      if (known !== undefined && current !== known) {
        log.warn({ before: known, now: current }, 'NATS was started anew: everything is listed and enqueued again')
        for (const { watch } of this.#watches.values()) watch.demand('store-restarted')
      }
      known = current
      await sleep(ASK_FOR_INCARNATION_EVERY_MS, undefined, { signal }).catch(() => undefined)
    }
  }

  #currentConditions(): { object: KubeObject; condition: SyncedCondition }[] {
    const statusOf = (ref: ResourceRef): ResourceStatus | undefined =>
      this.#watches.get(resourceName(ref))?.watch.status()
    return [
      ...this.#registry.refused.map((entry) => ({ object: entry.object, condition: refusedCondition(entry) })),
      ...this.#registry.served.map((entry) => ({ object: entry.object, condition: servedCondition(entry, statusOf) })),
    ]
  }

  readonly #now = (): Date => (this.#options.now ?? (() => new Date()))()
}
