import type { Invoke, KubeObject, RunLog } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { forEachAtMost } from '#primitives'
import type { Reconciled } from '#reconcile'
import type { ReconcilerSpec } from '#spec'
import { undefinedIfGone } from '../errors.ts'
import { apiView } from './api-view.ts'
import { type DryRunResult, dryRun } from './dry-run.ts'
import { fleetLists } from './fleet-lists.ts'

export interface FleetOptions {
  kube: KubeClient
  name: string
  spec: ReconcilerSpec
  invoke: Invoke
  /** The kinds whose contents are confidential. Left out: Secrets. */
  isReferenceOnly?: Reconciled['isReferenceOnly']
  /** The objects to compare, by pages. Their metadata is enough. */
  pages: Iterable<{ items: KubeObject[] }> | AsyncIterable<{ items: KubeObject[] }>
  /** The namespace of all objects; undefined: any. */
  namespace: string | undefined
  /** Dry runs at a time. */
  concurrency: number
  log: RunLog
  now: () => Date
  signal: AbortSignal
  /** Called before the dry run of an object. False: it is left out. */
  begins: (object: KubeObject) => boolean
  /** Called after the dry run of an object. */
  ends: (object: KubeObject, result: DryRunResult) => void
}

/**
 * Makes a dry run of every object. The names are listed first: the API server forgets the position in a list after some
 * minutes, and dry runs may take longer. Holds these names, those of all owned objects, and what the dry runs under way
 * read. Returns the number of objects.
 */
export async function dryRunAll(options: FleetOptions): Promise<number> {
  const { kube, spec, namespace, pages, concurrency, signal, begins, ends } = options
  const paths: string[] = []
  for await (const { items } of pages)
    paths.push(...items.map(({ metadata }) => resourcePath(spec.for, metadata.namespace, metadata.name)))
  const view = apiView(kube, signal, await fleetLists(kube, spec, namespace, signal), options.isReferenceOnly)
  return forEachAtMost(concurrency, paths, async (path) => {
    const found = await kube.get(path, { signal }).catch(undefinedIfGone)
    if (found === undefined || !begins(found)) return
    const { name, namespace: where } = found.metadata
    ends(found, await dryRun({ ...options, view, object: { namespace: where, name }, now: options.now() }))
  })
}
