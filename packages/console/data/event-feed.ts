import type { ResourceRef } from '#contracts'
import type { EventsView, StoredEvent } from '#events'
import { pause } from '#primitives'

/** One change of the cluster, without the object. */
interface FedEvent {
  sequence: number
  time: string
  verb: StoredEvent['verb']
  ref: ResourceRef
  kind: string
  namespace?: string
  name: string
  resourceVersion: string
  /** The process that wrote it, where a run did. */
  writtenBy?: string
}

/** The last changes in EVENTS, as long as a page asks for them. */
export interface EventFeed {
  /** The newest first. The first call begins to follow. */
  latest(): Promise<readonly FedEvent[]>
  close(): void
}

const KEPT = 500
/** The older ones that the first look shows. */
const BEFORE = 200
/** The feed ends when no page has asked for so long. */
const IDLE_MS = 30_000
const AGAIN_MS = 1000

export function eventFeed(open: () => Promise<EventsView>): EventFeed {
  let kept: FedEvent[] = []
  let stop: AbortController | undefined
  let idle: NodeJS.Timeout | undefined
  let failure: Error | undefined

  const follow = async (signal: AbortSignal): Promise<void> => {
    let start: number | undefined
    while (!signal.aborted) {
      try {
        const view = await open()
        start ??= Math.max(0, (await view.end()) - BEFORE)
        failure = undefined
        for await (const event of view.follow([{}], start, signal)) {
          start = event.sequence
          kept.push(fed(event))
          if (kept.length > KEPT * 2) kept = kept.slice(-KEPT)
        }
      } catch (error) {
        failure = error as Error
        await pause(AGAIN_MS, signal)
      }
    }
  }
  const end = (): void => {
    stop?.abort()
    stop = undefined
    kept = []
    clearTimeout(idle)
  }
  return {
    async latest() {
      clearTimeout(idle)
      idle = setTimeout(end, IDLE_MS).unref()
      if (stop === undefined) {
        stop = new AbortController()
        void follow(stop.signal)
        await pause(AGAIN_MS / 4, stop.signal)
      }
      if (failure !== undefined) throw failure
      return kept.toSorted((a, b) => b.sequence - a.sequence).slice(0, KEPT)
    },
    close: end,
  }
}

function fed({ sequence, event, verb, key, object, resourceVersion, origin }: StoredEvent): FedEvent {
  const writtenBy = origin?.split('/')[0]
  return {
    sequence,
    time: event.time ?? '',
    verb,
    ref: key.ref,
    kind: object.kind,
    ...(key.namespace !== undefined && { namespace: key.namespace }),
    name: key.name,
    resourceVersion,
    ...(writtenBy !== undefined && { writtenBy }),
  }
}
