import { keyOf } from '#events'
import { UsageError } from '#host/exit'
import type { WorkQueue } from '#queue'
import { type Row, toRow } from './rows.ts'
import type { State } from './states.ts'

export interface Filter {
  reconciler?: string | undefined
  namespace?: string | undefined
  /** Empty: all. `name` or `namespace/name`. */
  names?: readonly string[]
  /** Empty: all. */
  states?: readonly State[]
}

/** An error that names those which there are, if that is none of them. */
export async function demandReconciler(queue: WorkQueue, reconciler: string): Promise<void> {
  const known = await queue.reconcilers()
  if (known.includes(reconciler)) return
  const there = known.length === 0 ? 'no reconciler has been served here yet' : `there are: ${known.join(', ')}`
  throw new UsageError(`no reconciler "${reconciler}" in ${queue.stream}; ${there}`)
}

/** What matches, in the order of the queue. */
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

/** `namespace/name`, or a name alone: in the namespace of the option, else of an object without one. */
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

/** Where else that name is found, for the message that it is not there. */
export async function elsewhere(queue: WorkQueue, reconciler: string, { name }: KeyName): Promise<string> {
  const found = new Set<string>()
  for await (const row of selectRows(queue, { reconciler, names: [name] }))
    found.add(row.namespace === undefined ? row.name : `${row.namespace}/${row.name}`)
  return found.size === 0 ? '' : `; there is ${[...found].slice(0, 5).join(', ')}`
}
