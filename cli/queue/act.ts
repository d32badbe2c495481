import { UsageError } from '#host/exit'
import {
  type Act,
  type ActResult,
  actOn,
  called,
  demandReconciler,
  elsewhere,
  isDone,
  type KeyName,
  keyNameOf,
  MEANING,
  type State,
  selectRows,
} from '#inspect/keys'
import type { WorkQueue } from '#queue'
import type { Print } from '../options.ts'

export interface ActOptions {
  act: Act
  reconciler: string
  /** The keys as the user has given them. */
  keys: readonly string[]
  namespace?: string
  /** Selects every key in one of these states. */
  all: boolean
  states: readonly State[]
  output: 'text' | 'json'
}

export interface ActTools {
  print: Print
  /** Rejects with a message if the user does not confirm. */
  confirm: (question: string) => Promise<void>
  signal: AbortSignal
}

/** Prints the result for each key as soon as it is known. Returns true if every named key has the requested state. */
export async function actOnKeys(queue: WorkQueue, options: ActOptions, tools: ActTools): Promise<boolean> {
  const { act, reconciler, all, states, output } = options
  await demandReconciler(queue, reconciler)
  const names = await selectedKeys(queue, options)
  if (names.length === 0) tools.print(output === 'json' ? '[]' : `Nothing of ${reconciler} is ${states.join(' or ')}.`)
  if (names.length === 0) return true
  const meant = names.length === 1 ? '1 key' : `${names.length} keys`
  await tools.confirm(`Purge ${meant} of ${reconciler}? Their runs and timers are dropped until they change.`)
  const results: ActResult[] = []
  for await (const acted of actOn(queue, act, reconciler, names, tools.signal)) {
    // With `--all`, a key that has become idle in the meantime needs no action.
    if (all && acted.result === 'idle') continue
    results.push(acted)
    if (output === 'text') tools.print(await resultText(queue, act, acted))
  }
  if (output === 'json') tools.print(JSON.stringify(results, null, 2))
  return all || results.every(({ result }) => isDone(result, act))
}

async function selectedKeys(queue: WorkQueue, options: ActOptions): Promise<KeyName[]> {
  const { reconciler, keys, namespace, all, states } = options
  if (all === keys.length > 0) throw new UsageError('give either keys, as namespace/name, or --all')
  if (!all) return keys.map((key) => keyNameOf(key, namespace))
  const found = new Map<string, KeyName>()
  for await (const row of selectRows(queue, { reconciler, namespace, states }))
    found.set(called(row), { ...(row.namespace !== undefined && { namespace: row.namespace }), name: row.name })
  return [...found.values()]
}

async function resultText(queue: WorkQueue, act: Act, acted: ActResult): Promise<string> {
  const { reconciler, result, ...name } = acted
  if (result === 'idle') {
    const hint =
      (await elsewhere(queue, reconciler, name)) || (act === 'retry' ? '; queue run runs it all the same' : '')
    return `${called(acted)}: idle, nothing to ${act}${hint}`
  }
  return `${called(acted)}: ${MEANING[result]}${isDone(result, act) ? '' : ', left alone: try again when its run is over'}`
}
