import { ApiAnswerError } from './errors.ts'
import type { KubeClient, ListOptions, ListPage } from './types.ts'

interface ObjectList {
  apiVersion: string
  kind: string
  metadata?: { resourceVersion?: string; continue?: string; remainingItemCount?: number }
  items?: object[] | null
}

const DEFAULT_LIMIT = 500

export async function* listPages<T>(
  request: KubeClient['request'],
  path: string,
  { limit = DEFAULT_LIMIT, resourceVersion, resourceVersionMatch, ...options }: ListOptions,
): AsyncGenerator<ListPage<T>, void, undefined> {
  const { labelSelector, fieldSelector, ...rest } = options
  // A continue token carries its resourceVersion: the server refuses both together.
  let position: Record<string, string | undefined> = { resourceVersion, resourceVersionMatch }
  for (;;) {
    const query = { limit, labelSelector, fieldSelector, ...position }
    const list = await request<ObjectList>({ ...rest, method: 'GET', path, query })
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
