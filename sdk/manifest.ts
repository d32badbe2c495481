import { apiVersionOf } from '#contracts'
import { RECONCILERS, type ReconcilerSpec, reconcilerSpec, SYSTEM_NAMESPACE } from '#spec'
import type { Reconciler } from './definition.ts'
import { explain } from './explain.ts'
import type { Kind } from './kinds.ts'
import { isResource } from './resource.ts'

/**
 * The Reconciler resource of a function. It is a type, not an interface, so that it is a KubeObject too.
 *
 * @example
 * import { manifest, type ReconcilerManifest } from 'fairlead'
 * import { website } from './website.ts'
 * const { kind, metadata }: ReconcilerManifest = manifest(website)
 * `${kind} ${metadata.name}` // => 'Reconciler website'
 */
export type ReconcilerManifest = {
  apiVersion: string
  kind: 'Reconciler'
  metadata: { name: string }
  /** The spec without `paused` and `dryRun`: operators set these, and another installation keeps their values. */
  spec: Omit<ReconcilerSpec, 'paused' | 'dryRun'>
}

/**
 * Returns the Reconciler resource of a function, which `fairlead install` applies. By default dispatchers run the
 * function in their process; `invoke` names an HTTP endpoint instead. A new `revision` runs every object once more.
 * Throws an Error with the path of a value that the Reconciler cannot have.
 *
 * @example
 * import { manifest } from 'fairlead'
 * import { website } from './website.ts'
 * manifest(website, { revision: 'v2' }).spec.revision // => 'v2'
 */
export function manifest(
  reconciler: Reconciler,
  { invoke = { pull: {} }, revision }: { invoke?: ReconcilerSpec['invoke']; revision?: string | undefined } = {},
): ReconcilerManifest {
  const { name, identity, selector, namespaces, owns, related, changes, writes, binds, resyncSeconds, external } =
    reconciler
  const { concurrency, timeoutSeconds, backoff } = reconciler
  const { serviceAccount = { name: `fairlead-${name}`, namespace: SYSTEM_NAMESPACE } } = reconciler
  const given = {
    for: {
      ...resourceOf(reconciler.for),
      selector,
      namespaces,
      status: isResource(reconciler.for) ? undefined : 'Untouched',
    },
    owns: owns.map((kind) => ({ ...resourceOf(kind), strategy: kind.strategy, adopt: kind.adopt })),
    finalize: reconciler.finalize !== undefined,
    related,
    changes,
    identity,
    writes,
    binds,
    revision,
    resyncSeconds,
    invoke,
    concurrency,
    timeoutSeconds,
    external: external && { timeoutSeconds: external.timeoutSeconds, rateLimit: external.rateLimit },
    backoff,
    serviceAccount,
  }
  const { success, data, error } = reconcilerSpec.safeParse(given)
  if (!success) {
    const what = explain(error, given).replaceAll(/\bfor\.(selector|namespaces)\b/g, '$1')
    throw new Error(`reconciler ${name}: ${what}`, { cause: error })
  }
  const { paused: _, dryRun: __, ...spec } = data
  return {
    apiVersion: apiVersionOf(RECONCILERS),
    kind: 'Reconciler',
    metadata: { name },
    spec,
  }
}

const resourceOf = ({ group, version, resource, kind }: Kind<unknown>) => ({ group, version, resource, kind })
