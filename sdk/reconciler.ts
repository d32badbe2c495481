import { apiVersionOf, type Effect, type KubeObject } from '#contracts'
import { type Backoff, RECONCILERS, type ReconcilerSpec, reconcilerSpec, SYSTEM_NAMESPACE, userNameOf } from '#spec'
import type { PatchedKind, Reconciler, ReconcilerOptions, RelatedKind } from './definition.ts'
import type { ExternalSystem } from './external-system.ts'
import type { ActedKind, Kind } from './kinds.ts'
import { grantKinds, isNamedKind } from './named-kind.ts'
import { explain, keysOf, refuseUnknown } from './options.ts'
import { isResource, type Resource, resourcesOf } from './resource.ts'

/**
 * Declares a function: the kind that it reconciles, the kinds that it owns and reads, and `reconcile`, which returns
 * the objects that should exist. The platform creates, compares, prunes, writes status and conditions, retries and
 * keeps timers. One object has one run at a time; changes during a run cause another run.
 *
 * Throws an Error with one line, which names the option and the fix, for an option that is unknown or has a wrong
 * value.
 *
 * @example
 * import { ConfigMap, reconciler } from 'fairlead'
 * import { outcomeOf } from 'fairlead/testing'
 * import { Website } from './website.ts'
 * const page = reconciler({
 *   name: 'page',
 *   for: Website,
 *   owns: [ConfigMap],
 *   reconcile: ({ object: { metadata, spec } }) => ({
 *     apply: [ConfigMap.of({ metadata: { name: metadata.name }, data: { html: spec.html } })],
 *   }),
 * })
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const { apply } = await outcomeOf(page, { object })
 * apply?.map(({ kind }) => kind) // => ['ConfigMap']
 */
export function reconciler<
  For extends Kind<unknown>,
  Owns extends Kind<unknown> = never,
  Related extends RelatedKind = never,
  External = undefined,
  Change extends { kind: string } = Effect,
>(options: ReconcilerOptions<For, Owns, Related, External, Change>): Reconciler<For> {
  refuseWrong(options)
  const made: Reconciler<For> = Object.freeze({ owns: [], related: [], ...options })
  // As if a kind were granted, so that each path is checked.
  manifest(grantKinds(made, [made.for]))
  return made
}

export const RECONCILER_OPTIONS = keysOf<ReconcilerOptions<Kind<unknown>, Kind<unknown>, RelatedKind>>({
  name: true,
  identity: true,
  for: true,
  selector: true,
  namespaces: true,
  owns: true,
  related: true,
  trigger: true,
  metrics: true,
  patches: true,
  acts: true,
  changes: true,
  writes: true,
  binds: true,
  resyncSeconds: true,
  external: true,
  reconcile: true,
  finalize: true,
  formerFinalizers: true,
  concurrency: true,
  runRate: true,
  timeoutSeconds: true,
  backoff: true,
  serviceAccount: true,
})

export const RELATED_OPTIONS = keysOf<Omit<RelatedKind, keyof Kind>>({
  selector: true,
  fieldSelector: true,
  byName: true,
  kindPath: true,
  byOwner: true,
  naming: true,
  namespacePath: true,
  within: true,
  metadataOnly: true,
})
const PATCHED_OPTIONS = keysOf<Omit<PatchedKind, keyof Kind>>({ status: true, takes: true, within: true })
const ACTED_OPTIONS = keysOf<Omit<ActedKind, keyof Kind>>({ act: true, signers: true, within: true })
/** Keys of a kind or a resource. */
const KIND_FIELDS = keysOf<Resource>({
  group: true,
  version: true,
  resource: true,
  kind: true,
  strategy: true,
  adopt: true,
  parse: true,
  parseValid: true,
  validate: true,
  judge: true,
  check: true,
  validatingWebhook: true,
  of: true,
  outcomeStatus: true,
  crd: true,
  versions: true,
  convert: true,
  rules: true,
  codeChecks: true,
  admit: true,
  policies: true,
})
export const BACKOFF_OPTIONS = keysOf<Backoff>({ initialSeconds: true, maxSeconds: true, jitter: true })

const RUN_RATE_OPTIONS = keysOf<NonNullable<Reconciler['runRate']>>({ perSecond: true, burst: true })

const EXTERNAL_OPTIONS = keysOf<ExternalSystem<unknown, unknown, unknown>>({
  config: true,
  read: true,
  perform: true,
  timeoutSeconds: true,
  rateLimit: true,
})

/** Throws for options with a wrong type: Node.js strips types without checking them. The manifest checks the values. */
function refuseWrong(options: { readonly [Name in keyof Reconciler]?: unknown }): void {
  const { name, external, reconcile, finalize, owns = [], related = [], runRate, backoff = {} } = options
  const { patches = [], acts = [] } = options
  if (typeof name !== 'string' || !/^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/.test(name))
    throw new Error(`reconciler name "${String(name)}" is not a DNS label: use a-z, 0-9 and -, 63 characters at most`)
  const whose = `reconciler ${name}`
  refuseUnknown(options, RECONCILER_OPTIONS, whose)
  const primary = options.for
  if (!isObject(primary) || !('resource' in primary))
    throw new Error(`${whose}: "for" is not a resource: give the result of resource({ … }) or kind({ … })`)
  if (typeof reconcile !== 'function') throw new Error(`${whose} has no "reconcile": give it a function of a run`)
  if (finalize !== undefined && typeof finalize !== 'function')
    throw new Error(`${whose}: "finalize" is not a function: give it one of a run, or leave it out`)
  for (const [list, kinds] of Object.entries({ owns, related, patches, acts }))
    if (!Array.isArray(kinds) || !kinds.every(isObject))
      throw new Error(`${whose}: "${list}" is not a list of kinds: write ${list}: [ConfigMap]`)
  for (const [list, kinds] of Object.entries({ owns, related }))
    for (const [index, one] of (kinds as object[]).entries())
      refuseUnknown(one, [...RELATED_OPTIONS, ...KIND_FIELDS], `${whose}: ${list}[${index}]`)
  for (const [index, one] of (patches as object[]).entries())
    refuseUnknown(one, [...PATCHED_OPTIONS, ...KIND_FIELDS], `${whose}: patches[${index}]`)
  const observed = [primary, ...(owns as object[]), ...(related as object[])] as Kind<unknown>[]
  for (const [index, one] of (acts as Kind<unknown>[]).entries()) {
    refuseUnknown(one, [...ACTED_OPTIONS, ...KIND_FIELDS], `${whose}: acts[${index}]`)
    if (!observed.some((kind) => isSame(kind, one)))
      throw new Error(`${whose}: acts[${index}] is of a kind that it does not observe: add ${one.kind} to "related"`)
  }
  const makesItsOwn = (owns as Kind<unknown>[]).some((one) => isSame(one, primary as Kind<unknown>))
  if (makesItsOwn && !('crd' in primary) && options.selector === undefined)
    throw new Error(
      `${whose} owns what it is for, so that all that it makes would be reconciled as well: give it a "selector" that leaves that out`,
    )
  if (external !== undefined) refuseWrongExternal(external, whose)
  if (isObject(runRate)) refuseUnknown(runRate, RUN_RATE_OPTIONS, `${whose}: runRate`)
  if (isObject(backoff)) refuseUnknown(backoff, BACKOFF_OPTIONS, `${whose}: backoff`)
}

function refuseWrongExternal(external: unknown, whose: string): void {
  const { read, perform }: Partial<Record<string, unknown>> = isObject(external) ? { ...external } : {}
  if (typeof read !== 'function') throw new Error(`${whose}: "external" has no "read": give it a function of a run`)
  if (perform !== undefined && typeof perform !== 'function')
    throw new Error(`${whose}: external.perform is not a function: give it one of an effect and a run, or leave it out`)
  refuseUnknown(external as object, EXTERNAL_OPTIONS, `${whose}: external`)
}

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null

const isSame = (one: Pick<Kind, 'group' | 'resource'>, other: Pick<Kind, 'group' | 'resource'>): boolean =>
  one.group === other.group && one.resource === other.resource

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
  {
    invoke = { pull: reconciler.declaredBy ?? {} },
    revision,
  }: { invoke?: ReconcilerSpec['invoke']; revision?: string | undefined } = {},
): ReconcilerManifest {
  const {
    name,
    identity,
    selector,
    namespaces,
    owns,
    related,
    changes,
    writes,
    binds,
    resyncSeconds,
    external,
    patches = [],
    acts = [],
  } = reconciler
  const kindPaths = [...new Set(related.filter(isNamedKind).map(({ kindPath }) => kindPath))]
  const { trigger, metrics, formerFinalizers, concurrency, runRate, timeoutSeconds, backoff } = reconciler
  const { serviceAccount = { name: `fairlead-${name}`, namespace: SYSTEM_NAMESPACE } } = reconciler
  const given = {
    for: {
      ...resourceOf(reconciler.for),
      selector,
      namespaces,
      status: isResource(reconciler.for) || reconciler.keepsStatus ? undefined : 'Untouched',
    },
    owns: owns.map((kind) => ({ ...resourceOf(kind), strategy: kind.strategy, adopt: kind.adopt })),
    finalize: reconciler.finalize !== undefined,
    formerFinalizers,
    related: related.filter((kind) => !isNamedKind(kind)),
    kindPaths: kindPaths.length === 0 ? undefined : kindPaths,
    trigger,
    metrics,
    patches: patches.length === 0 ? undefined : patches,
    acts: acts.length === 0 ? undefined : acts,
    changes,
    identity,
    writes,
    binds,
    revision,
    resyncSeconds,
    invoke,
    concurrency,
    runRate,
    timeoutSeconds,
    external: external && {
      config: external.config,
      timeoutSeconds: external.timeoutSeconds,
      rateLimit: external.rateLimit,
    },
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

/**
 * Returns the policies of the rules of the resources that functions reconcile, as far as a CustomResourceDefinition
 * cannot have them, with their bindings. They are in force for everyone but the functions of the resource: by default
 * those that are given, otherwise those of `exempt`.
 *
 * @example
 * import { onlyGroups, policiesOf, reconciler, resource, z } from 'fairlead'
 * const Disk = resource({
 *   group: 'example.com', version: 'v1', kind: 'Disk', plural: 'disks', rules: [onlyGroups(['admins'], ['DELETE'])],
 *   spec: z.object({}), status: z.object({}),
 * })
 * const disk = reconciler({ name: 'disk', for: Disk, reconcile: () => undefined })
 * policiesOf([disk]).map(({ kind }) => kind) // => ['ValidatingAdmissionPolicy', 'ValidatingAdmissionPolicyBinding']
 */
export const policiesOf = (
  functions: readonly Reconciler[],
  exempt: readonly Pick<ReconcilerSpec, 'for' | 'serviceAccount'>[] = functions.map((one) => manifest(one).spec),
): KubeObject[] =>
  resourcesOf(functions).flatMap((resource) => {
    const accounts = exempt.flatMap(({ for: primary, serviceAccount }) =>
      isSame(primary, resource) && serviceAccount ? [userNameOf(serviceAccount)] : [],
    )
    return resource.policies([...new Set(accounts)].sort())
  })
