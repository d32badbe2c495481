import { createHmac } from 'node:crypto'
import { z } from 'zod'
import {
  type ClusterInfo,
  type Effect,
  type FunctionInput,
  type Invoke,
  type KubeObject,
  type Outcome,
  type PerformInput,
  publicNames,
  type ReadInput,
  type RunContext,
  type RunInput,
  TerminalError,
  withPlace,
} from '#contracts'
import { isOwnedBy } from '#spec'
import { configOf } from './config.ts'
import type { AnyRun, External, Reconciler } from './definition.ts'
import { inputKey, type Kind, type ObservedBy } from './kinds.ts'
import { demandGranted, isNamedKind, namedObjects } from './named-kind.ts'
import { plain } from './options.ts'
import { outcomeReader } from './outcome.ts'
import { isResource } from './resource.ts'

/** An Invoke whose decisions are typed. */
interface Called {
  (input: RunInput, context: RunContext): Promise<Outcome>
  (input: FunctionInput, context: RunContext): Promise<unknown>
}

/**
 * Returns the function as a call on JSON, with input and outcome checked, as dispatchers and HTTP servers call it.
 * `external` replaces the external system of the function, for example by a model.
 *
 * An object that is deleted resolves with an empty outcome, unless it waits for the finalizer of the reconciler: then
 * `finalize` runs. Rejects with a TerminalError for an invalid object or outcome. Rejects with an error that is retried
 * if the input belongs to another version of the function.
 *
 * @example
 * import { toInvoke } from 'fairlead'
 * import { website } from './website.ts'
 * const log = { debug() {}, info() {}, warn() {}, error() {} }
 * const input = { object: null, owned: {}, related: {}, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
 * await toInvoke(website)(input, { log, signal: AbortSignal.timeout(1000) }) // => {}
 */
export function toInvoke(reconciler: Reconciler, external: External | undefined = reconciler.external): Called {
  const status = isResource(reconciler.for)
    ? reconciler.for.outcomeStatus
    : reconciler.keepsStatus && z.record(z.string(), z.unknown())
  const declared = new WeakMap<object, Called>()
  let readOutcome: ReturnType<typeof outcomeReader> | undefined
  const decide: Invoke = async (input, context) => {
    const { with: given, ...own } = context
    if (given !== undefined) return declaredFrom(reconciler, given, declared)(input, own)
    if (input.ask !== undefined) return askExternal(reconciler, external, input, context)
    const { object, finalizing } = input
    if (object === null || (object.metadata.deletionTimestamp !== undefined && !finalizing)) return {}
    const run = openRun(reconciler, object, input, context)
    if (finalizing) demandFinalize(reconciler)
    demandExternal(reconciler, input)
    const returned = await (finalizing ? reconciler.finalize?.(run) : reconciler.reconcile(run))
    readOutcome ??= outcomeReader(reconciler.name, status)
    const outcome = readOutcome(returned ?? {}, (run.object as { status?: unknown }).status)
    if (outcome.apply !== undefined) refuseToPruneUnknown(reconciler, input)
    if (outcome.effect !== undefined) refuseWithoutPerform(reconciler, outcome.effect)
    return outcome
  }
  const invoke: Invoke = (input, context) =>
    decide(input, context).catch((error: unknown) => {
      throw withPlace(error)
    })
  return invoke as Called
}

/** Returns the function that an object declares. `known`: those of this process. */
function declaredFrom(
  { name, adapts }: Reconciler,
  given: Readonly<Record<string, unknown>>,
  known: WeakMap<object, Called>,
): Called {
  if (adapts === undefined)
    throw new OtherVersionError(`this version of the function ${name} serves no other Reconciler`)
  const { object, kinds, part } = given as unknown as NonNullable<Reconciler['declaredBy']>['with']
  const before = known.get(given)
  if (before !== undefined) return before
  const declared = adapts.declare(object, kinds)[part]
  if (declared === undefined)
    throw new OtherVersionError(`${object.kind} ${object.metadata.name} declares less in this version of ${name}`)
  const made = toInvoke(declared)
  known.set(given, made)
  return made
}

async function askExternal(
  reconciler: Reconciler,
  external: External | undefined,
  input: ReadInput | PerformInput,
  context: RunContext,
): Promise<unknown> {
  const { name } = reconciler
  if (external === undefined)
    throw new OtherVersionError(`Reconciler ${name} has an external system, but this version of its function has none`)
  if (input.object === null) return null
  if (input.ask === 'perform' && external.perform === undefined)
    throw new OtherVersionError(`this version of the function of Reconciler ${name} performs no effects`)
  const { config, log, withoutSecrets, demandWithoutSecrets } = configOf(name, external.config, context, () =>
    namesIn(reconciler, input),
  )
  const run = { ...openRun(reconciler, input.object, input, { ...context, log }), config }
  const what = `what "${input.ask}" returned`
  try {
    const returned = await (input.ask === 'read' ? external.read(run) : external.perform?.(input.effect, run))
    const answer = plain(returned ?? null, what)
    demandWithoutSecrets(answer, what)
    return answer
  } catch (error) {
    throw withoutSecrets(error)
  }
}

function namesIn({ name, for: primary, owns, related }: Reconciler, input: FunctionInput): string[] {
  const observed = [input.owned, input.related].flatMap((kinds) => Object.values(kinds).flat())
  return publicNames(name, [primary, ...owns, ...related], [...(input.object ? [input.object] : []), ...observed])
}

function refuseWithoutPerform({ external }: Reconciler, { kind }: Effect): void {
  if (external === undefined || external.perform !== undefined) return
  const message = `the function returned the effect ${kind}, but "external" has no "perform": give it one`
  throw new TerminalError(message, { reason: 'InvalidOutcome' })
}

/** Rejects an input without the external state: the function would treat the external system as empty. */
function demandExternal({ name, external }: Reconciler, input: RunInput): void {
  if (external === undefined || 'external' in input) return
  throw new OtherVersionError(
    `Reconciler ${name} has no external system, but this version of its function has one: install it again`,
  )
}

/**
 * Rejects a Reconciler with a finalizer if this version of the function has no `finalize`: a process of the older
 * version must not remove the finalizer.
 */
function demandFinalize(reconciler: Reconciler): void {
  if (reconciler.finalize === undefined)
    throw new OtherVersionError(`Reconciler ${reconciler.name} finalizes, but this version of its function does not`)
}

/**
 * Rejects an input with owned kinds that this version does not declare: a newer version has created them, and this
 * version would delete them.
 */
function refuseToPruneUnknown({ name, owns }: Reconciler, { owned }: RunInput): void {
  const known = new Set(owns.map(inputKey))
  const unknown = Object.keys(owned).filter((kind) => !known.has(kind) && (owned[kind] ?? []).length > 0)
  if (unknown.length === 0) return
  const kinds = unknown.join(', ')
  throw new OtherVersionError(`Reconciler ${name} owns ${kinds}, which this version of its function would delete`)
}

/** The run is retried. It succeeds when all processes and the Reconciler have the same version. */
class OtherVersionError extends Error {
  override readonly name = 'OtherVersionError'
}

const ONLY_CLUSTER: ClusterInfo = { name: '', id: '', labels: {} }

function openRun(
  reconciler: Reconciler,
  object: KubeObject,
  { owned, related, refused = {}, performed, now, attempt, seed, cluster = ONLY_CLUSTER, ...others }: FunctionInput,
  { log, signal }: RunContext,
): AnyRun {
  demandGranted(reconciler, object, related)
  return {
    object: isResource(reconciler.for) ? reconciler.for.parseValid(object) : reconciler.for.parse(object),
    owned: (kind) => {
      const mine = observed(reconciler, 'owns', kind, owned).filter((child) => isOwnedBy(child, object))
      return mine.map((child) => kind.parse(child)) as ObservedBy<typeof kind>[]
    },
    related: (kind) => {
      if (isNamedKind(kind)) return namedObjects(kind, object, related) as ObservedBy<typeof kind>[]
      return observed(reconciler, 'related', kind, related).map((other) => kind.parse(other)) as ObservedBy<
        typeof kind
      >[]
    },
    refused: (kind) => {
      const key = inputKey(kind)
      const isRead = [reconciler.for, ...reconciler.related].some((one) => inputKey(one) === key)
      return isRead ? (refused[key] ?? []) : observed(reconciler, 'owns', kind, refused)
    },
    external: ('external' in others ? others.external : undefined) as never,
    performed,
    cluster,
    now: new Date(now),
    secret: (name) => drawn(seed, name),
    attempt,
    log,
    signal,
  }
}

function drawn(seed: string | undefined, name: string): string {
  if (seed === undefined) throw new Error(`no secret "${name}" can be drawn: the run has come without a seed`)
  const draw = (round: number): string => createHmac('sha512', seed).update(`${round} ${name}`).digest('base64')
  return `${draw(0)}${draw(1)}`.replaceAll(/[^A-Za-z0-9]/g, '').slice(0, 32)
}

/** The objects of a kind in the input. */
function observed<T>(
  reconciler: Reconciler,
  list: 'owns' | 'related',
  kind: Kind<unknown>,
  objects: Record<string, T[]>,
): T[] {
  const key = inputKey(kind)
  if (!reconciler[list].some((declared) => inputKey(declared) === key))
    throw new TerminalError(`reconciler ${reconciler.name} asks for ${key}: add it to its "${list}"`, {
      reason: 'UndeclaredKind',
    })
  return objects[key] ?? []
}
