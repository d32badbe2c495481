import { keyOf } from '#events'
import { UsageError } from '#host/exit'
import type { WorkQueue } from '#queue'
import { type Row, toRow } from './rows.ts'
import type { State } from './states.ts'

export interface Filter {
  reconciler?: string | undefined
  namespace?: string | undefined
  /** Empty selects all. `name` or `namespace/name`. */
  names?: readonly string[]
  /** Empty selects all. */
  states?: readonly State[]
}

/** Throws an error that lists the existing reconcilers if `reconciler` is not one of them. */
export async function demandReconciler(queue: WorkQueue, reconciler: string): Promise<void> {
  const known = await queue.reconcilers()
  if (known.includes(reconciler)) return
  const there = known.length === 0 ? 'no reconciler has been served here yet' : `there are: ${known.join(', ')}`
  throw new UsageError(`no reconciler "${reconciler}" in ${queue.stream}; ${there}`)
}

/** Yields the matching rows in the order of the queue. */
export async function* selectRows(queue: WorkQueue, filter: Filter): AsyncGenerator<Row> {
  const { reconciler, states = [] } = filter
  const which = { ...(reconciler !== undefined && { reconciler }), ...(states.length > 0 && { states }) }
  for await (const entry of queue.list(which)) {
    const row = toRow(entry)
    if (matches(row, filter)) yield row
  }
}

function matches(row: Row, { namespace, names = [] }: Filter): boolean {
  if (namespace !== undefined && row.namespace !== namespace) return false
  return names.length === 0 || names.some((name) => name === row.name || name === `${row.namespace}/${row.name}`)
}

export interface KeyName {
  namespace?: string
  name: string
}

/** Parses `namespace/name`, or a name alone: in the namespace of the option, or else of a cluster-scoped object. */
export function keyNameOf(text: string, namespace: string | undefined): KeyName {
  const [before, after, ...rest] = text.split('/')
  if (rest.length > 0 || before === '' || after === '')
    throw new UsageError(`"${text}" is not a key: give name, or namespace/name`)
  if (after === undefined) return { ...(namespace !== undefined && { namespace }), name: text }
  if (namespace !== undefined && namespace !== before)
    throw new UsageError(`"${text}" is not in namespace ${namespace}: leave out one of the two`)
  return { namespace: before ?? '', name: after }
}

export const keyFor = (reconciler: string, { namespace, name }: KeyName) => ({
  reconciler,
  key: keyOf(namespace, name),
})

/** Returns where else that name exists, for the message of an error. */
export async function elsewhere(queue: WorkQueue, reconciler: string, { name }: KeyName): Promise<string> {
  const found = new Set<string>()
  for await (const row of selectRows(queue, { reconciler, names: [name] }))
    found.add(row.namespace === undefined ? row.name : `${row.namespace}/${row.name}`)
  return found.size === 0 ? '' : `; there is ${[...found].slice(0, 5).join(', ')}`
}
