import { AnswerTooLargeError, ApiAnswerError } from './errors.ts'
import type { KubeClient, ListOptions, ListPage } from './types.ts'

interface ObjectList {
  apiVersion: string
  kind: string
  metadata?: { resourceVersion?: string; continue?: string; remainingItemCount?: number }
  items?: object[] | null
}

const DEFAULT_LIMIT = 500
/** The size of 500 objects of 16 KiB. A page takes several times as much memory while it is parsed. */
const MAX_PAGE_BYTES = 8 * 2 ** 20
/** The number of pages in a row that fit before the number of objects per page is doubled. */
const FITTING = 8

/** Lists in pages. A page that is too large is requested again with half as many objects. */
export async function* listPages<T>(
  request: KubeClient['request'],
  path: string,
  { limit = DEFAULT_LIMIT, resourceVersion, resourceVersionMatch, ...options }: ListOptions,
): AsyncGenerator<ListPage<T>, void, undefined> {
  const { labelSelector, fieldSelector, ...rest } = options
  // A continue token contains its resourceVersion. The server refuses a request with both.
  let position: Record<string, string | undefined> = { resourceVersion, resourceVersionMatch }
  let objects = limit
  for (let fitting = 0; ; fitting++) {
    if (fitting >= FITTING && objects < limit) {
      objects = Math.min(limit, 2 * objects)
      fitting = 0
    }
    const query = { limit: objects, labelSelector, fieldSelector, ...position }
    // With resourceVersion 0 there are no pages, and a page of one object cannot be divided.
    const maxBytes = objects > 1 && position['resourceVersion'] !== '0' ? MAX_PAGE_BYTES : undefined
    let list: ObjectList
    try {
      list = await request<ObjectList>({ ...rest, method: 'GET', path, query, maxBytes })
    } catch (error) {
      if (maxBytes === undefined || !(error instanceof AnswerTooLargeError)) throw error
      objects = Math.floor(objects / 2)
      fitting = 0
      continue
    }
    yield pageOf(path, list)
    const next = list.metadata?.continue
    if (next === undefined || next === '') return
    position = { continue: next }
  }
}

function pageOf<T>(path: string, list: ObjectList): ListPage<T> {
  const { resourceVersion, remainingItemCount } = list.metadata ?? {}
  if (resourceVersion === undefined || !list.kind.endsWith('List')) {
    throw new ApiAnswerError(`GET ${path}: a list was asked for, the answer is a ${list.kind}`)
  }
  const type = { apiVersion: list.apiVersion, kind: list.kind.slice(0, -'List'.length) }
  return {
    items: (list.items ?? []).map((item) => ({ ...type, ...item }) as T),
    resourceVersion,
    ...(remainingItemCount === undefined ? {} : { remaining: remainingItemCount }),
  }
}
