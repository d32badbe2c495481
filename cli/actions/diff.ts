import type { KubeObject } from '#contracts'
import { type DryRunResult, dryRunAll } from '#dispatch'
import { referenceRule } from '#events'
import { dieBecause, EXIT, UsageError, untilStopped } from '#host/exit'
import { demandFunctions, functionNamed, type Selection } from '#host/functions'
import { guardFunctions } from '#host/isolation'
import { openKube } from '#host/kube'
import { createLogger } from '#host/logging'
import { isNotFound, type KubeClient, METADATA_ONLY_LIST, resourcePath } from '#kube'
import { breakingChanges, type CustomResourceDefinition, definitionsOf, manifest, type Reconciler } from '#sdk'
import { reconcilerSpec } from '#spec'
import { changesIn, schemaChanges } from '../diff/compare.ts'
import { Shapes } from '../diff/shapes.ts'
import { type FleetDiff, textOf } from '../diff/text.ts'
import { existing, namespaceFor } from '../one-object.ts'
import type { CommandContext } from '../options.ts'

export interface DiffOptions extends Selection {
  all?: true
  namespace?: string
  selector?: string
  reconciler?: string
  concurrency: number
  output: 'text' | 'json'
}

export async function printDiff(
  names: readonly string[],
  options: DiffOptions,
  { config, print, setExitCode }: CommandContext,
): Promise<void> {
  if (names.length === 0 && !options.all && options.namespace === undefined && options.selector === undefined)
    throw new UsageError('no objects are selected: give names, or --all, -n NAMESPACE or -l SELECTOR')
  const settings = await config()
  await using kube = await openKube(settings)
  const functions = await demandFunctions(options)
  const chosen = options.reconciler === undefined ? functions : [functionNamed(functions, options.reconciler)]
  const log = await createLogger({ ...settings, LOG_LEVEL: 'silent' })
  const { signal } = untilStopped()
  using guard = guardFunctions({
    files: options.function,
    leaseMs: settings.FAIRLEAD_LEASE_SECONDS * 1000,
    log,
    fatal: dieBecause(process.env),
  })
  const found: FleetDiff[] = []
  for (const one of chosen) {
    const collected = new Collected(one, await breakingIn(kube, one, signal))
    await dryRunAll({
      kube,
      name: one.name,
      spec: reconcilerSpec.parse(manifest(one).spec),
      invoke: guard.invoke(one),
      isReferenceOnly: referenceRule(settings.FAIRLEAD_REFERENCE_ONLY),
      ...(await selected(kube, one, names, options, signal)),
      concurrency: options.concurrency,
      log,
      now: () => new Date(),
      signal,
      begins: (object) => collected.begins(object),
      ends: (object, result) => collected.ends(object, result),
    })
    found.push(collected.diff)
    if (options.output === 'text') print(textOf(collected.diff))
  }
  if (options.output === 'json') print(JSON.stringify({ reconcilers: found }, null, 2))
  setExitCode(exitCodeOf(found))
}

/** The objects of one function, as pages. */
async function selected(
  kube: KubeClient,
  { for: kind }: Reconciler,
  names: readonly string[],
  { namespace, selector }: DiffOptions,
  signal: AbortSignal,
) {
  const isAnywhere = namespace === undefined && names.length === 0
  const where = isAnywhere ? undefined : await namespaceFor(kube, kind, namespace ?? 'default')
  const named = names.map((name) => existing(kube, kind, { namespace: where, name }, signal))
  const listed = kube.list(resourcePath(kind, where), {
    labelSelector: selector,
    accept: METADATA_ONLY_LIST,
    signal,
  })
  return { namespace: where, pages: names.length > 0 ? [{ items: await Promise.all(named) }] : listed }
}

/** The comparison of one function, object by object. */
class Collected {
  readonly #reconciler: Reconciler
  readonly #hasSchema: boolean
  readonly #shapes = new Shapes()
  readonly #counts: Omit<FleetDiff, 'shapes'>

  constructor(reconciler: Reconciler, breaking: string[]) {
    const { name, for: kind } = reconciler
    this.#reconciler = reconciler
    this.#hasSchema = definitionsOf([reconciler]).length > 0
    this.#counts = { reconciler: name, kind: kind.kind, objects: 0, changed: 0, failed: 0, breaking }
  }

  get diff(): FleetDiff {
    return { ...this.#counts, shapes: this.#shapes.list() }
  }

  /** An object that the schema refuses is not given to the function. */
  begins(object: KubeObject): boolean {
    this.#counts.objects++
    if (!this.#hasSchema) return true
    const changes = schemaChanges(this.#reconciler, object)
    for (const change of changes) this.#shapes.add(change)
    const isRefused = changes.some(({ what }) => what === 'refuse')
    if (isRefused) this.#counts.failed++
    return !isRefused
  }

  ends(object: KubeObject, result: DryRunResult): void {
    const changes = changesIn(object, result)
    for (const change of changes) this.#shapes.add(change)
    if (changes.some(({ what }) => what === 'fail')) this.#counts.failed++
    else if (changes.length > 0) this.#counts.changed++
  }
}

/** Compares the installed definition with that of the function. */
async function breakingIn(kube: KubeClient, { for: kind }: Reconciler, signal: AbortSignal): Promise<string[]> {
  const [after] = definitionsOf([{ for: kind }])
  if (after === undefined) return []
  const path = resourcePath(DEFINITIONS, undefined, after.metadata.name)
  const before = await kube.get<CustomResourceDefinition>(path, { signal }).catch((cause: unknown) => {
    if (!isNotFound(cause)) throw cause
    throw new UsageError(`the cluster has no ${after.metadata.name}: run fairlead install first`, { cause })
  })
  if (!before.spec.versions.some(({ name, served }) => served && name === kind.version))
    throw new UsageError(
      `the cluster does not serve ${after.metadata.name} in version ${kind.version}: run fairlead install first`,
    )
  return breakingChanges(before, after)
}

const DEFINITIONS = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }

function exitCodeOf(found: readonly FleetDiff[]): number {
  if (found.some(({ failed }) => failed > 0)) return EXIT.byFunction
  const isSame = found.every(({ shapes, breaking }) => shapes.length === 0 && breaking.length === 0)
  return isSame ? EXIT.ok : EXIT.failed
}
