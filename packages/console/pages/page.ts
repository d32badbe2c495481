import type { Logger } from 'pino'
import { type Access, AccessUnknownError, type Action, type Person } from '#console/access'
import type { KubeObject, ResourceRef } from '#contracts'
import { isRefused, readReconciler } from '#spec'
import { AwayError, type Data } from '../data/data.ts'
import type { Html } from '../html.ts'

/** Abilities besides reading, given by the command that starts the console. */
export interface Abilities {
  /** Writes are switched on. */
  writes: boolean
  /** Resolves with the output of `fairlead run --dry-run -o json`. Left out: no functions are loaded. */
  preview?: (reconciler: string, namespace: string | undefined, name: string) => Promise<unknown>
  /** A recorded run on the function as it is, as `fairlead replay -o json` has it. Left out: no functions are loaded. */
  replay?: (run: number) => Promise<unknown>
  /** Publishes the event of an object again; gives what came of it, in words. */
  publish?: (ref: ResourceRef, namespace: string | undefined, name: string) => Promise<string>
}

/** A request for a page, and the person who sends it. */
export interface Ask {
  person: Person
  /** Asked once for each action of a page. */
  may(action: Action): Promise<boolean>
  /** Whether `may` was false because the person has asked too much. */
  isUnchecked(action: Action): boolean
  /** The cluster that the page shows, and the beginning of the addresses of its pages. Left out: it has no name. */
  cluster?: { name: string; path: string }
  data: Data
  abilities: Abilities
  /** Without the beginning that names the cluster. */
  url: URL
  /** The decoded parts of the path that the route leaves open. */
  params: readonly string[]
  now: Date
  log: Logger
}

export type Section = 'overview' | 'queue' | 'runs' | 'events' | 'usage' | 'dead' | 'none'

/** One page. Its head stays, its regions follow what happens. */
export interface Page {
  title: string
  section: Section
  head: Html
  /** By id. Those whose name is `side` stand beside the others where there is room. */
  regions: Record<string, Html>
  /** Stays below the regions. */
  foot?: Html
  /** A look at what it shows is taken this often at most. Left out: it shows what does not change. */
  everyMs?: number
}

export type PageOf = (ask: Ask) => Promise<Page>

/** The page does not exist, or the person may not see it. The answer is the same for both. */
export class NotFoundError extends Error {
  override readonly name = 'NotFoundError'
}

/** Questions that are asked again and again while a page is made. */
export function askedOnce(access: Access, person: Person): Pick<Ask, 'may' | 'isUnchecked'> {
  const known = new Map<string, Promise<boolean>>()
  const unchecked = new Set<string>()
  return {
    may(action) {
      const key = JSON.stringify(action)
      const answer = known.get(key) ?? access.may(person, action, () => unchecked.add(key)).catch(asAway)
      known.set(key, answer)
      return answer
    },
    isUnchecked: (action) => unchecked.has(JSON.stringify(action)),
  }
}

const asAway = (cause: unknown): never => {
  if (cause instanceof AccessUnknownError) throw new AwayError('The API server', cause.message)
  throw cause
}

/** Items in the order in which they were, without those that the person may not see. */
export async function permitted<T>(ask: Ask, items: readonly T[], actionOf: (item: T) => Action): Promise<T[]> {
  const isSeen = await Promise.all(items.map((item) => ask.may(actionOf(item))))
  return items.filter((_, index) => isSeen[index])
}

/** The kinds that reconcilers are for, by the name of the Reconciler. */
export async function primaries({ data }: Ask): Promise<Map<string, ResourceRef & { kind: string }>> {
  const found = new Map<string, ResourceRef & { kind: string }>()
  for (const object of await data.reconcilers()) {
    const primary = primaryOf(object)
    if (primary) found.set(object.metadata.name, primary)
  }
  return found
}

export function primaryOf(reconciler: KubeObject): (ResourceRef & { kind: string }) | undefined {
  const spec = readReconciler(reconciler)
  return isRefused(spec) ? undefined : spec.for
}
