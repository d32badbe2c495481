import {
  apiVersionOf,
  ConflictError,
  controllerOf,
  type EventReport,
  type KubeObject,
  keepsStatus,
  kindName,
  type ResourceRef,
  type RunInput,
  TerminalError,
} from '#contracts'
import {
  deepFreeze,
  dueDate,
  finalizersBefore,
  finalizersWithout,
  isFinalizing,
  isPaused,
  type MetadataWrite,
  nextWrite,
  type Plan,
  parseOutcome,
  pausePatch,
  plan,
  RefusedError,
  type SettledWrites,
  UnsettledError,
  type Write,
} from '#dispatch'
import type { Reconciler } from '#sdk'
import { inputOf, invokeOf } from './given.ts'
import { type Memory, MemoryRefusal } from './memory.ts'
import { prepared } from './prepared.ts'

/** One request of a run. */
export interface SimulatedWrite {
  verb: 'create' | 'apply' | 'delete' | 'metadata' | 'status' | 'finalizers'
  object: KubeObject
}

/** What a run is made with, and who is told of its steps. */
export interface Dispatching {
  reconciler: Reconciler
  memory: Memory
  settled: SettledWrites
  attempt: number
  /** The object that is reconciled, as it is now. */
  primary: () => KubeObject | undefined
  /** Called before each write; may throw, and may change the memory. */
  before: (write: SimulatedWrite) => void
  /** Called after a write that has changed something. */
  wrote: (write: SimulatedWrite) => void
  decidesOn: (input: RunInput) => void
  tells: (event: EventReport) => void
}

/** Decisions on its own results before the function counts as one that never settles; as in a dispatcher. */
const MAX_ROUNDS = 8

/** From one look at the world until nothing is left to write. Returns when the function wants to run again. */
export async function lap(run: Dispatching): Promise<Date | undefined> {
  const { reconciler, primary } = run
  const first = primary()
  if (first !== undefined && isPaused(first)) return leave(run, first)
  const finalizers = finalizersToKeep(run)
  if (finalizers !== undefined) writeFinalizers(run, finalizers)
  for (let round = 1; ; round++) {
    const object = primary()
    if (object === undefined || isGoing(object, reconciler)) return undefined
    const next = await decide(run, object)
    const write = nextWrite(next)
    if (write?.kind === 'owned') for (const one of write.stages.flat()) send(run, object, one)
    else if (write?.kind === 'metadata') writeMetadata(run, object, write.write)
    else if (write?.kind === 'status') writeStatus(run, object, write.patch)
    else if (write?.kind === 'deletion') deleteObserved(run, object)
    for (const event of next.events) run.tells(event)
    if (write !== undefined && round === MAX_ROUNDS) throw new UnsettledError(MAX_ROUNDS, next)
    if (write !== undefined) continue
    if (next.requeue === undefined && isFinalizing(object, reconciler.name))
      writeFinalizers(run, finalizersWithout(object.metadata, reconciler.name))
    return next.requeue && dueDate(next.requeue, run.memory.now)
  }
}

/** Paused: only that is said of it. */
function leave(run: Dispatching, object: KubeObject): undefined {
  const { spec } = prepared(run.reconciler)
  const patch = keepsStatus(spec) ? pausePatch(object, run.memory.now) : undefined
  if (patch !== undefined) writeStatus(run, object, patch)
}

const isGoing = (object: KubeObject, { name }: Reconciler): boolean =>
  object.metadata.deletionTimestamp !== undefined && !isFinalizing(object, name)

function finalizersToKeep({ reconciler, primary }: Dispatching): string[] | undefined {
  const object = primary()
  return object && finalizersBefore(object, reconciler.name, prepared(reconciler).spec)
}

function writeFinalizers(run: Dispatching, finalizers: string[]): void {
  const object = run.primary()
  if (object === undefined) return
  const { resourceVersion } = object.metadata
  run.before({ verb: 'finalizers', object })
  if (run.memory.find(object) === undefined) return
  run.wrote({ verb: 'finalizers', object: run.memory.patch(object, { metadata: { finalizers, resourceVersion } }) })
}

async function decide(
  { reconciler, memory, attempt, settled, decidesOn }: Dispatching,
  object: KubeObject,
): Promise<Plan> {
  const { now } = memory
  const input = inputOf(reconciler, { object, others: memory.all(), now, attempt })
  decidesOn(structuredClone(input))
  const outcome = parseOutcome(await invokeOf(reconciler)(deepFreeze(input)))
  const { spec } = prepared(reconciler)
  const owned = spec.owns.flatMap((resource) =>
    (input.owned[kindName(resource.kind, apiVersionOf(resource))] ?? []).map((child) => ({ resource, object: child })),
  )
  const next = plan(spec, { object, owned }, outcome, { reconciler: reconciler.name, now, settled, isConfidential })
  if (next.findings.length === 0) return next
  throw new TerminalError(next.findings.join('; '), { reason: 'InvalidOutcome' })
}

const isConfidential = ({ group, resource }: ResourceRef): boolean => group === '' && resource === 'secrets'

function send(run: Dispatching, owner: KubeObject, write: Write): void {
  const { memory, settled } = run
  const { verb, object } = write
  run.before({ verb, object })
  if (verb === 'delete') {
    if (memory.find(object) !== undefined) memory.delete(object)
    return run.wrote({ verb, object })
  }
  const before = memory.find(object)
  if (before !== undefined && controllerOf(before)?.uid !== owner.metadata.uid)
    throw new RefusedError(`${object.kind} ${object.metadata.name} exists, but is not controlled by this object`, {
      reason: 'NameTaken',
    })
  const after = verb === 'create' ? created(memory, object) : memory.apply(object)
  if (write.verb === 'apply')
    settled.remember(after.metadata.uid ?? '', after.metadata.resourceVersion ?? '', write.fingerprint)
  if (after.metadata.resourceVersion !== before?.metadata.resourceVersion) run.wrote({ verb, object: after })
}

function writeMetadata(run: Dispatching, object: KubeObject, { object: wanted, manager }: MetadataWrite): void {
  run.before({ verb: 'metadata', object })
  if (run.memory.find(object) === undefined) return
  run.wrote({ verb: 'metadata', object: run.memory.applyMetadata(wanted, manager) })
}

/** Only the version that was observed. */
function deleteObserved(run: Dispatching, object: KubeObject): void {
  const { memory } = run
  run.before({ verb: 'delete', object })
  const found = memory.find(object)
  if (found === undefined) return
  if (found.metadata.resourceVersion !== object.metadata.resourceVersion)
    throw new ConflictError(`${object.kind} ${object.metadata.name} is not what was observed any more`)
  memory.delete(object)
  run.wrote({ verb: 'delete', object })
}

function created(memory: Memory, object: KubeObject): KubeObject {
  try {
    return memory.create(object)
  } catch (error) {
    if (error instanceof MemoryRefusal) throw new ConflictError(error.message, { cause: error })
    throw error
  }
}

/** A merge patch that holds for the version that was observed. */
export function writeStatus(run: Dispatching, object: KubeObject, patch: object): void {
  run.before({ verb: 'status', object })
  if (run.memory.find(object) === undefined) return
  run.wrote({ verb: 'status', object: run.memory.patch(object, patch) })
}
