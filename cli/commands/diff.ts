import { type KubeObject, namespacedName } from '#contracts'
import { type DryRunResult, type DryRunStep, dryRunAll } from '#dispatch'
import { referenceRule } from '#events'
import { withDeclared } from '#install'
import { isNotFound, type KubeClient, METADATA_ONLY_LIST, resourcePath } from '#kube'
import { dieBecause, EXIT, UsageError, untilStopped } from '#process/exit'
import { demandFunctions, functionNamed, type Selection } from '#process/functions'
import { guardFunctions } from '#process/isolation'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import { type Difference, differences } from '#reconcile'
import { breakingChanges, type CustomResourceDefinition, isResource, manifest, type Reconciler } from '#sdk'
import { reconcilerSpec } from '#spec'
import { changeText } from '#testing'
import type { CommandContext } from '../options.ts'
import { existing, namespaceFor } from './one-object.ts'

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
  const functions = await withDeclared(kube, await demandFunctions(options), {
    says: (line) => process.stderr.write(`fairlead: ${line}\n`),
  })
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
    this.#hasSchema = isResource(reconciler.for)
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
  const [after] = isResource(kind) ? [kind.crd({ caBundle: '' })] : []
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

/** The changes that a dry run of one object shows. The last state of each written object counts. */
export function changesIn({ metadata, kind }: KubeObject, { would, finish }: DryRunResult): Change[] {
  const written = new Map<string, Change>()
  const others: Change[] = []
  for (const step of would) {
    if (step.would === 'tell') continue
    if (step.would === 'perform')
      others.push({ what: 'perform', kind: effectKind(step), object: namespacedName(metadata), differences: [] })
    else {
      const object = namespacedName(step)
      const found = step.would === 'change' ? step.differences.flatMap((one) => conditionDifference(one, metadata)) : []
      written.set(`${step.kind} ${object}`, { what: step.would, kind: step.kind, object, differences: found })
    }
  }
  if (finish.kind === 'error' || finish.kind === 'terminal') {
    const message = messageShape(finish.message, metadata)
    others.push({ what: 'fail', kind, object: namespacedName(metadata), differences: [], message })
  }
  return [...written.values(), ...others]
}

const IN_CONDITION = /^\.status\.conditions\[\d+\]\.(message|lastTransitionTime)$/

/** Leaves out the times of conditions, and the names of the object in their messages: they differ for each object. */
function conditionDifference(found: Difference, names: KubeObject['metadata']): Difference[] {
  const [, field] = IN_CONDITION.exec(found.path) ?? []
  if (field === 'lastTransitionTime') return []
  if (field === undefined) return [found]
  const unnamed = Object.entries(found).map(([side, value]) => [
    side,
    side !== 'path' && typeof value === 'string' ? messageShape(value, names) : value,
  ])
  return [Object.fromEntries(unnamed) as Difference]
}

function effectKind({ effect }: DryRunStep & { would: 'perform' }): string {
  try {
    return (JSON.parse(effect) as { kind: string }).kind
  } catch {
    return effect
  }
}

/** What the schema of the function does to a stored object: fields that it does not have, and defaults that it adds. */
function schemaChanges({ for: kind }: Pick<Reconciler, 'for'>, object: KubeObject): Change[] {
  const about = { kind: object.kind, object: namespacedName(object.metadata) }
  let parsed: { spec?: unknown }
  try {
    parsed = (isResource(kind) ? kind.parseValid(object) : kind.parse(object)) as { spec?: unknown }
  } catch (error) {
    const message = messageShape(error instanceof Error ? error.message : String(error), object.metadata)
    return [{ what: 'refuse', ...about, differences: [], message }]
  }
  const found = differences({ spec: object.spec ?? {} }, { spec: parsed.spec })
  const pruned = found.filter((one) => !('after' in one))
  const added = found.filter((one) => 'after' in one)
  return [
    ...(pruned.length > 0 ? [{ what: 'prune' as const, ...about, differences: pruned }] : []),
    ...(added.length > 0 ? [{ what: 'default' as const, ...about, differences: added }] : []),
  ]
}

/** One change of one object. */
export interface Change {
  what: 'create' | 'change' | 'delete' | 'perform' | 'fail' | 'refuse' | 'prune' | 'default'
  /** The kind of the object, or of the effect. */
  kind: string
  /** `namespace/name` of the changed object. */
  object: string
  /** Left out for a new object: its fields are not compared. */
  differences: readonly Difference[]
  /** The error of a failure. */
  message?: string
}

/** Changes of one kind of object that concern the same fields. */
export interface Shape {
  what: Change['what']
  kind: string
  objects: number
  examples: string[]
  message?: string
  /** Left out: fields of several shapes, because there are too many shapes. */
  fields?: ShapeField[]
}

interface ShapeField {
  /** Indexes of lists are left out: `.spec.containers[*].image`. */
  path: string
  /** The first ones. */
  values: Pick<Difference, 'before' | 'after'>[]
  /** There are further values. */
  isMore: boolean
}

const EXAMPLES = 3
const VALUES = 3
const MAX_SHAPES = 200
const LONGEST = 200

/** Groups changes by shape, in memory that does not depend on their number. */
export class Shapes {
  readonly #shapes = new Map<string, { shape: Shape; fields: Map<string, Field> | undefined }>()

  add(change: Change): void {
    const fields = Map.groupBy(change.differences, ({ path }) => path.replaceAll(/\[\d+\]/g, '[*]'))
    const about = [change.what, change.kind]
    const id = JSON.stringify([...about, change.message, [...fields.keys()].sort()])
    const isKnown = this.#shapes.has(id) || this.#shapes.size < MAX_SHAPES
    const { message, what, kind } = change
    const entry = this.#entry(isKnown ? id : JSON.stringify(about), () => ({
      shape: { what, kind, objects: 0, examples: [], ...(isKnown && message !== undefined && { message }) },
      fields: isKnown ? new Map<string, Field>() : undefined,
    }))
    entry.shape.objects++
    if (entry.shape.examples.length < EXAMPLES) entry.shape.examples.push(change.object)
    if (entry.fields === undefined) return
    for (const [path, found] of fields) noted(entry.fields, path, found)
  }

  /** The most frequent first. */
  list(): Shape[] {
    return [...this.#shapes.values()]
      .map(({ shape, fields }) => ({
        ...shape,
        ...(fields && {
          fields: [...fields].map(([path, { values, isMore }]) => ({ path, values: [...values.values()], isMore })),
        }),
      }))
      .sort((one, other) => other.objects - one.objects)
  }

  #entry(id: string, make: () => { shape: Shape; fields: Map<string, Field> | undefined }) {
    const entry = this.#shapes.get(id) ?? make()
    this.#shapes.set(id, entry)
    return entry
  }
}

interface Field {
  values: Map<string, ShapeField['values'][number]>
  isMore: boolean
}

function noted(fields: Map<string, Field>, path: string, found: readonly Difference[]): void {
  const field = fields.get(path) ?? { values: new Map(), isMore: false }
  fields.set(path, field)
  for (const { path: _, ...values } of found) {
    const text = JSON.stringify(values)
    if (field.values.has(text)) continue
    if (field.values.size >= VALUES) field.isMore = true
    else field.values.set(text, shortened(values))
  }
}

const shortened = (values: ShapeField['values'][number]): ShapeField['values'][number] =>
  Object.fromEntries(
    Object.entries(values).map(([name, value]) => {
      const text = JSON.stringify(value)
      return [name, text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : value]
    }),
  )

/** The message with the names of its object left out, so that the same failure of many objects is one. */
export function messageShape(message: string, { namespace, name }: { namespace?: string; name: string }): string {
  const known = [name, ...(namespace === undefined ? [] : [namespace])].filter((text) => text.length > 1)
  return known
    .reduce((text, one) => text.replaceAll(wordOf(one), one === name ? 'NAME' : 'NAMESPACE'), message)
    .slice(0, 4 * LONGEST)
}

const wordOf = (text: string): RegExp => new RegExp(`(?<![\\w.])${text.replaceAll(/[.\\]/g, '\\$&')}(?![\\w])`, 'g')

/** The differences of one function over all compared objects. */
export interface FleetDiff {
  reconciler: string
  kind: string
  /** Compared objects. */
  objects: number
  /** Objects of which something would change. */
  changed: number
  /** Objects of which the run would fail, or that the schema refuses. */
  failed: number
  /** Changes of the installed definition under which stored objects lose data or are refused. */
  breaking: string[]
  shapes: Shape[]
}

const VERBS: Record<Shape['what'], string> = {
  create: 'create',
  change: 'change',
  delete: 'delete',
  perform: 'perform',
  fail: 'fail for',
  refuse: 'refuse, by the new schema,',
  prune: 'drop, by the new schema, fields of',
  default: 'default, by the new schema, fields of',
}

export function textOf({ reconciler, kind, objects, changed, failed, breaking, shapes }: FleetDiff): string {
  const head = `${reconciler}: ${objects} objects of ${kind} compared, ${changed} would change, ${failed} would fail`
  return [head, ...breaking.map((line) => `  ! ${line}`), ...shapes.map(shapeText)].join('\n')
}

function shapeText({ what, kind, objects, examples, message, fields }: Shape): string {
  const more = objects > examples.length ? ', …' : ''
  const head = `  ${VERBS[what]} ${objects} ${kind} (${examples.join(', ')}${more})`
  const rest = fields === undefined ? ['    in further fields'] : fields.flatMap(fieldText)
  return [head, ...(message === undefined ? [] : [`    ${message}`]), ...rest].join('\n')
}

const fieldText = ({ path, values, isMore }: ShapeField): string[] => {
  const lines = values.map((one) => `    ${changeText({ path, ...one })}`)
  return isMore ? [...lines, `      and further values of ${path}`] : lines
}
