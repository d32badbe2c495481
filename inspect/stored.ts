import type { KubeObject, ResourceRef } from '#contracts'
import { type EventsView, isPresent, NoEventsError, type ObjectFilter } from '#events'
import { RECONCILERS } from '#spec'

/** Returns the watched kinds; an empty list if EVENTS does not exist. */
export async function watchedIn(view: EventsView): Promise<ResourceRef[]> {
  return view.resources().catch((error: unknown) => {
    if (error instanceof NoEventsError) return []
    throw error
  })
}

/** Returns the objects that EVENTS has, without deleted ones. */
export async function presentObjects(view: EventsView, filter: ObjectFilter): Promise<KubeObject[]> {
  const found: KubeObject[] = []
  for await (const event of view.stored([filter])) if (isPresent(event)) found.push(event.object)
  return found
}

export const reconcilersIn = (view: EventsView): Promise<KubeObject[]> => presentObjects(view, { ref: RECONCILERS })
