import { setTimeout as sleep } from 'node:timers/promises'
import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import type { PutResult, Verb } from '#events'
import { unlessAborted } from './abort.ts'
import type { Change, Owner, Routes, Target } from './routing.ts'
import type { Scopes } from './scopes.ts'
import type { BridgeOptions } from './types.ts'

/** A change to store, or keys that are owed a run though EVENTS has the object's version. */
export type News =
  | { verb: Verb; object: KubeObject }
  | ({ verb: undefined } & Omit<Change, 'owners'> & { owner: Owner | undefined })

export interface Publication {
  ref: ResourceRef
  news: News | (() => Promise<News>)
  /** As they were when the change was read: what a cursor says of it holds for these. */
  routes: Routes
  lane: 'high' | 'low'
  /** The Reconcilers, by token, that are owed a run; left out: all. */
  only?: ((token: string) => boolean) | undefined
}

export type PublisherDeps = Pick<BridgeOptions, 'events' | 'queue' | 'log' | 'settled' | 'observer'> & {
  scopes: Scopes
}

const FIRST_RETRY_MS = 100
const LAST_RETRY_MS = 5000

/** Brings single changes to EVENTS and their keys to the queue. */
export class Publisher {
  readonly #deps: PublisherDeps
  readonly #declarations = new Map<string, Promise<void>>()

  constructor(deps: PublisherDeps) {
    this.#deps = deps
  }

  /** Resolves when the change is stored and each of its keys is enqueued; goes on trying until the signal. */
  async publish(publication: Publication, signal: AbortSignal): Promise<void> {
    const { ref } = publication
    const began = performance.now()
    const news = await this.#persistently(ref, signal, () => findOut(publication))
    const stored = await this.#persistently(ref, signal, () => this.#store(publication, news, signal))
    await this.#persistently(ref, signal, () => this.#enqueue(publication, news, stored, signal))
    if (news.verb === undefined || stored === undefined) return
    const { verb, object } = news
    this.#deps.observer?.published?.({ ref, verb, object, outcome: stored.outcome, ms: performance.now() - began })
  }

  async #store({ ref, routes }: Publication, news: News, signal: AbortSignal): Promise<PutResult | undefined> {
    if (news.verb === undefined) return undefined
    const owner = routes.ownerOf(news.object)
    return this.#deps.events.put(ref, news.verb, news.object, {
      ...(owner && { owner: { resource: owner.resource, name: owner.name } }),
      signal,
    })
  }

  async #enqueue(
    { ref, routes, lane, only }: Publication,
    news: News,
    stored: PutResult | undefined,
    signal: AbortSignal,
  ) {
    const { queue, observer, scopes } = this.#deps
    const change = changeOf(news, routes, stored)
    await scopes.learn(routes.ownerRefs(ref, change.owners), signal)
    const targets = routes
      .targetsOf(ref, change, scopes.isClusterScoped)
      .filter((target) => (only?.(target.token) ?? true) && !this.#isEcho(target, stored))
    const enqueued = targets.map(async ({ fn, key }) => {
      await this.#declared(fn)
      await queue.enqueue(fn, key, { lane })
      observer?.enqueued?.({ fn, key, lane })
    })
    await unlessAborted(Promise.all(enqueued), signal)
  }

  /** A queue has to exist before anything is put into it; once per process is enough. */
  async #declared(fn: string): Promise<void> {
    const declaration = this.#declarations.get(fn) ?? this.#deps.queue.declare(fn)
    this.#declarations.set(fn, declaration)
    await declaration.catch((error: unknown) => {
      this.#declarations.delete(fn)
      throw error
    })
  }

  #isEcho({ fn, key }: Target, stored: PutResult | undefined): boolean {
    if (stored?.outcome !== 'present' || stored.origin === undefined) return false
    return this.#deps.settled?.({ fn, key, origin: stored.origin }) ?? false
  }

  async #persistently<T>(ref: ResourceRef, signal: AbortSignal, act: () => Promise<T>): Promise<T> {
    for (let delayMs = FIRST_RETRY_MS; ; delayMs = Math.min(delayMs * 2, LAST_RETRY_MS)) {
      try {
        return await act()
      } catch (error) {
        signal.throwIfAborted()
        this.#deps.log.warn(
          { err: error, resource: resourceName(ref), delayMs },
          'a change could not be published; its watch is held back until it is',
        )
        await sleep(delayMs, undefined, { signal })
      }
    }
  }
}

const findOut = async ({ news }: Publication): Promise<News> => (typeof news === 'function' ? news() : news)

function changeOf(news: News, routes: Routes, stored: PutResult | undefined): Change {
  if (news.verb === undefined) return { ...news, owners: news.owner ? [news.owner] : [] }
  const { namespace, name, labels = {} } = news.object.metadata
  const owner = routes.ownerOf(news.object)
  return { namespace, name, labels, owners: [...(owner ? [owner] : []), ...(stored?.formerOwners ?? [])] }
}
