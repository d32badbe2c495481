import type { KubeObject } from '#contracts'
import type { EventsView } from '#events'
import { called, keyNameOf, type QueuedNow, queueNow } from '#inspect/keys'
import type { WorkQueue } from '#queue'
import type { Print } from '../options.ts'

export interface RunNowOptions {
  reconciler: string
  /** The keys as the user has given them. */
  keys: readonly string[]
  namespace?: string
  output: 'text' | 'json'
}

export interface RunNowTools {
  queue: WorkQueue
  events: EventsView
  print: Print
}

/** Prints for each object whether it is queued. Returns true if all objects exist. */
export async function runNow(options: RunNowOptions, { print, ...tools }: RunNowTools): Promise<boolean> {
  const { reconciler, keys, namespace, output } = options
  const names = keys.map((key) => keyNameOf(key, namespace))
  const results: Omit<QueuedNow, 'there'>[] = []
  for await (const { there, ...acted } of queueNow(tools, reconciler, names)) {
    results.push(acted)
    if (output === 'text')
      print(`${called(acted)}: ${acted.result === 'queued' ? 'queued' : `no such object${elsewhere(there)}`}`)
  }
  if (output === 'json') print(JSON.stringify(results, null, 2))
  return results.every(({ result }) => result === 'queued')
}

const elsewhere = (there: readonly KubeObject[]): string =>
  there.length === 0
    ? ''
    : `; there is ${there
        .slice(0, 5)
        .map(({ metadata: { namespace, name } }) => (namespace === undefined ? name : `${namespace}/${name}`))
        .join(', ')}`
