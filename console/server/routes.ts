import { deadPage, letterPage } from '../pages/dead.ts'
import { eventsPage } from '../pages/events.ts'
import { objectPage } from '../pages/object.ts'
import { overview } from '../pages/overview.ts'
import type { PageOf } from '../pages/page.ts'
import { previewPage, replayPage } from '../pages/preview.ts'
import { queuePage } from '../pages/queue.ts'
import { latestRunPage, runPage } from '../pages/run.ts'
import { runsPage } from '../pages/runs.ts'

const PAGES: [path: RegExp, page: PageOf][] = [
  [/^\/$/, overview],
  [/^\/queue$/, queuePage],
  [/^\/objects\/([^/]+)\/([^/]+)\/([^/]+)$/, objectPage],
  [/^\/preview\/([^/]+)\/([^/]+)\/([^/]+)$/, previewPage],
  [/^\/runs$/, runsPage],
  [/^\/runs\/latest$/, latestRunPage],
  [/^\/runs\/(\d+)$/, runPage],
  [/^\/runs\/(\d+)\/replay$/, replayPage],
  [/^\/events$/, eventsPage],
  [/^\/dead$/, deadPage],
  [/^\/dead\/(\d+)$/, letterPage],
]

export interface Route {
  page: PageOf
  params: string[]
}

/** Undefined: there is no such page. */
export function routeOf(path: string): Route | undefined {
  for (const [pattern, page] of PAGES) {
    const match = pattern.exec(path)
    if (match) return { page, params: match.slice(1).map(decoded) }
  }
  return undefined
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
