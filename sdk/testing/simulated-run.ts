import {
  type Act,
  ConflictError,
  type EventReport,
  type KubeObject,
  type Outcome,
  type ResourceRef,
  type RunInput,
  type WriteRecord,
} from '#contracts'
import type { Finish } from '#queue/terms'
import {
  type Acted,
  type Answer,
  type Ask,
  asTakenBack,
  called,
  editOf,
  type FieldsWrite,
  GoneError,
  isAsBefore,
  type MetadataWrite,
  type NoOpWrites,
  type Note,
  type Observed,
  type PlannedAct,
  type Reconciled,
  RefusedError,
  reconciled,
  run as reconcileRun,
  returnedBy,
  sharedWithOurs,
  type TakenField,
  takeOver,
  type Write,
  type Written,
  withOldBefore,
  withValues,
} from '#reconcile'
import type { Reconciler } from '#sdk'
import type { SimulatedExternal } from './external.ts'
import { invokeOf, isOwned, prepared, worldOf } from './given.ts'
import { type Memory, MemoryRefusal } from './memory.ts'

/**
 * One write request of a simulated run.
 *
 * @example
 * import { type SimulatedWrite, simulate } from 'fairlead/testing'
 * import { Website, website } from './website.ts'
 * const object = Website.of({ metadata: { name: 'a', namespace: 'default' }, spec: { html: 'hi' } })
 * const world = simulate(website, { objects: [object] })
 * await world.runUntilIdle()
 * const [first]: readonly SimulatedWrite[] = world.writes
 * first?.object.kind // => 'ConfigMap'
 */
export interface SimulatedWrite {
  verb: Exclude<WriteRecord['verb'], 'effect'>
  object: KubeObject
}

/** The input of a run, and its callbacks. */
export interface SimulatedRun {
  reconciler: Reconciler
  memory: Memory
  noOps: NoOpWrites
  /** Undefined for a function without an external system. */
  external: SimulatedExternal | undefined
  /** In a dry run, effects are not performed. */
  isDry: boolean
  attempt: number
  /** The random source of `secret`. */
  seed: string
  /** Returns the current version of the reconciled object. */
  primary: () => KubeObject | undefined
  /** Returns the reason why the write is refused; undefined if it is accepted. */
  refusal: (write: SimulatedWrite) => string | undefined
  /** Called before each write. It may throw, and may change the memory. */
  before: (write: SimulatedWrite) => void
  /** Called after a write that has changed the memory. */
  wrote: (write: SimulatedWrite) => void
  decides: (input: RunInput, outcome: Promise<Outcome>) => void
  tells: (event: EventReport) => void
}

/** Thrown by `before` to simulate the death of the process. */
export class Crash extends Error {
  override readonly name = 'Crash'
}

/** The end of a run, and the error of its last failure. */
export interface SimulatedRunEnd {
  finish: Finish
  failure: Error | undefined
}

/**
 * Runs the reconciler once on a cluster in memory. Rejects with a Crash of `before`, and leaves the cluster in the
 * state of the crash.
 */
export async function reconcileOnce(run: SimulatedRun): Promise<SimulatedRunEnd> {
  const { name } = run.reconciler
  const of = reconciled(name, prepared(run.reconciler).spec, isConfidential)
  const driver = new SimulatedDriver(run, of)
  let failure: Error | undefined
  const tell = (note: Note): void => {
    if (note.note === 'event') run.tells(note.event)
    if (note.note === 'noOp') run.noOps.remember(note.target, note.value)
    if (note.note === 'failed' || note.note === 'unreported') failure = note.error as Error
  }
  const asks = reconcileRun(of, { attempt: run.attempt, random: 0, tell })
  let step = asks.next()
  while (!step.done) step = asks.next(await driver.answer(step.value))
  return { finish: step.value, failure }
}

const isConfidential = ({ group, resource }: ResourceRef): boolean => group === '' && resource === 'secrets'

class SimulatedDriver {
  readonly #run: SimulatedRun
  readonly #of: Reconciled
  /** Whether another writer has changed the memory since this run has read it. */
  #isStale = false

  constructor(run: SimulatedRun, of: Reconciled) {
    this.#run = run
    this.#of = of
  }

  async answer(ask: Ask): Promise<Answer> {
    try {
      return await this.#perform(ask)
    } catch (error) {
      if (error instanceof Crash) throw error
      return { failed: error }
    }
  }

  async #perform(ask: Ask): Promise<Answer> {
    switch (ask.do) {
      case 'observe':
        return { did: ask.do, seen: this.#observe() }
      case 'call': {
        const outcome = invokeOf(this.#run.reconciler)(ask.input)
        this.#run.decides(structuredClone(ask.input), outcome)
        return { did: ask.do, returned: await outcome }
      }
      case 'read':
        return { did: ask.do, external: await this.#run.external?.read(ask.input) }
      case 'perform':
        if (this.#run.isDry) return { did: ask.do, isSkipped: true }
        return { did: ask.do, result: await this.#run.external?.perform(ask.input) }
      case 'write':
        return { did: ask.do, results: ask.writes.map((write) => this.#tried(() => this.#send(write))) }
      case 'writeStatus':
        return { did: ask.do, result: this.#patch('status', ask.object, ask.patch) }
      case 'writeMetadata':
        return { did: ask.do, result: this.#writeMetadata(ask.object, ask.write) }
      case 'delete':
        return { did: ask.do, result: this.#delete(ask.object) }
      case 'writeFinalizers': {
        const { resourceVersion } = ask.object.metadata
        const patch = { metadata: { finalizers: ask.finalizers, resourceVersion } }
        return { did: ask.do, result: this.#patch('finalizers', ask.object, patch) }
      }
      case 'writeRecord': {
        const { resourceVersion } = ask.object.metadata
        const metadata = { annotations: { [ask.annotation]: ask.value ?? null }, resourceVersion }
        return { did: ask.do, result: this.#patch('metadata', ask.object, { metadata }) }
      }
      case 'writeFields':
        return { did: ask.do, results: ask.writes.map((write) => this.#tried(() => this.#writeFields(write))) }
      case 'act':
        return { did: ask.do, results: ask.acts.map((act) => this.#tried(() => this.#act(act, ask.object))) }
      case 'wait':
        return { did: ask.do }
      case 'finish':
        return { did: ask.do, changed: this.#isStale }
    }
  }

  #observe(): Observed | undefined {
    const { memory, noOps, primary, seed } = this.#run
    this.#isStale = false
    const object = primary()
    if (object === undefined) return undefined
    const world = worldOf(this.#of, object, memory.all())
    return {
      world,
      now: memory.now,
      seed: `${seed} ${object.metadata.uid}`,
      noOps: noOps.of(world, this.#of.spec.acts !== undefined),
    }
  }

  #tried<T>(send: () => T): T | { failed: unknown } {
    try {
      return send()
    } catch (error) {
      if (error instanceof Crash) throw error
      return { failed: error }
    }
  }

  #send(write: Write): Written {
    const { verb, object } = write
    const { memory, primary } = this.#run
    this.#admit(verb, object)
    const found = memory.find(object)
    if (verb === 'delete') {
      if (found !== undefined) memory.delete(object)
      return this.#wrote(verb, object, memory.find(object), found)
    }
    if (verb === 'patch') {
      if (found === undefined) throw new ConflictError(`${object.kind} ${object.metadata.name} is gone`)
      return this.#wrote(verb, object, memory.patch(object, write.patch), found)
    }
    const owner = primary()
    if (owner === undefined) throw new GoneError('the object was deleted during its run')
    const { identity } = this.#of
    if (found !== undefined && !isOwned(found, owner, identity)) {
      const { write: taking, adopted } = takeOver(write, found, { identity, owner })
      return { ...this.#wrote(verb, object, memory.apply(taking.object), found), adopted }
    }
    if (verb === 'create') return this.#wrote(verb, object, created(memory, object), found)
    return this.#wrote(verb, object, memory.apply(counted(write, memory.takenBack(object))), found)
  }

  #writeFields(write: FieldsWrite): Written {
    const { verb, fields, object, manager } = write
    const { memory } = this.#run
    this.#admit(verb, object)
    const found = memory.find(object)
    const what = `cannot set fields of ${called(object)}`
    if (found === undefined) {
      if (verb === 'giveBack') return { object: undefined, isOld: false }
      throw new RefusedError(`${what}: it does not exist`, { reason: 'NotFound' })
    }
    const own = fields.status ? `${manager} status` : manager
    const taken = memory.takenFields(object, own)
    if (!taken.every(({ field }) => isAsBefore(write, field, found)))
      throw new RefusedError(`${what}: others have them`, { reason: 'FieldConflict', taken })
    const shared = sharedWithOurs(write, (path) => memory.holdersOf(found, path))
    if (shared.length > 0)
      throw new RefusedError(`${what}: another object of ours has them`, { reason: 'FieldConflict', taken: shared })
    const old = withOldBefore(write, found, (path) => memory.holdersOf(found, path))
    if (old.length > 0) throw new RefusedError(`${what}: it is another object`, { reason: 'FieldConflict', taken: old })
    const returned = returnedBy(write, (path) => memory.hasField(found, own, path))
    return this.#wrote(verb, object, memory.applyFields(object, own, withValues(object, returned)), found)
  }

  /** Acts on the observed version only. `seen`: the primary. */
  #act({ verb, act, object }: PlannedAct, seen: KubeObject): Acted {
    const { memory, before, refusal, wrote, primary } = this.#run
    before({ verb, object })
    const present = primary()
    if (present === undefined || editOf(present) !== editOf(seen))
      throw new ConflictError(`${called(seen)} was edited since it was observed`)
    const reason = refusal({ verb, object })
    const message = `cannot ${verb} ${called(object)}: the simulation refuses it`
    if (reason === 'DisruptionBudget') return { waits: { reason, message, retryAfterSeconds: undefined } }
    if (reason !== undefined) throw new RefusedError(message, { reason })
    const found = memory.find(object)
    if (found === undefined) return {}
    if (found.metadata.resourceVersion !== object.metadata.resourceVersion) {
      if (found === present) throw new ConflictError(`${called(object)} has changed since it was observed`)
      this.#isStale = true
      return { isPast: true }
    }
    if (act.act === 'Evict') memory.delete(found)
    else memory.patch(found, changeOf(act, found))
    const after = memory.find(object)
    if (after !== found) this.#wrote(verb, object, after, found)
    else wrote({ verb, object })
    return after === found && act.act !== 'Evict' ? { isUnchanged: true } : {}
  }

  /** Applies a merge patch, for the observed version only. */
  #patch(verb: 'status' | 'finalizers' | 'metadata', object: KubeObject, patch: object): Written {
    const { memory } = this.#run
    const found = this.#before(verb, object)
    const after = memory.patch(object, patch)
    return this.#wrote(verb, after, memory.find(object) && after, found)
  }

  #writeMetadata(object: KubeObject, write: MetadataWrite): Written {
    const { memory } = this.#run
    const { manager } = write
    const found = this.#before('metadata', object)
    const sent = counted(write, memory.takenBack(write.object, manager))
    return this.#wrote('metadata', object, memory.applyMetadata(sent, manager), found)
  }

  /** Deletes the observed version only. */
  #delete(object: KubeObject): Written {
    const { memory } = this.#run
    const found = this.#before('delete', object)
    if (found.metadata.resourceVersion !== object.metadata.resourceVersion)
      throw new ConflictError(`${object.kind} ${object.metadata.name} has changed since it was observed`)
    memory.delete(object)
    return this.#wrote('delete', object, memory.find(object), found)
  }

  #admit(verb: SimulatedWrite['verb'], object: KubeObject): void {
    const { before, refusal } = this.#run
    before({ verb, object })
    const reason = refusal({ verb, object })
    if (reason === undefined) return
    throw new RefusedError(`cannot ${verb} ${called(object)}: the simulation refuses it`, { reason })
  }

  /** Returns the current object before a write. */
  #before(verb: SimulatedWrite['verb'], object: KubeObject): KubeObject {
    const { memory } = this.#run
    this.#admit(verb, object)
    const found = memory.find(object)
    if (found === undefined) throw new GoneError(`${object.kind} ${object.metadata.name} is gone`)
    return found
  }

  /** Records a write of this run. Changes by others in the meantime make the run read again. */
  #wrote(
    verb: SimulatedWrite['verb'],
    sent: KubeObject,
    after: KubeObject | undefined,
    found: KubeObject | undefined,
  ): Written {
    const { memory, wrote } = this.#run
    if (found !== undefined && after?.metadata.resourceVersion === found.metadata.resourceVersion)
      return { object: after, isOld: false }
    const { version } = memory
    wrote({ verb, object: after ?? sent })
    if (memory.version !== version) this.#isStale = true
    const isOld = memory.find(sent)?.metadata.resourceVersion !== after?.metadata.resourceVersion
    return { object: after, isOld }
  }
}

/** Returns what the API server changes for an act, as a merge patch. */
function changeOf(act: Exclude<Act, { act: 'Evict' }>, { spec, status }: KubeObject): object {
  if (act.act === 'Scale') return { spec: { replicas: act.replicas } }
  if (act.act === 'Bind') {
    const { nodeName } = (spec ?? {}) as { nodeName?: string }
    if (nodeName !== undefined)
      throw new RefusedError(`cannot bind ${called(act.on)}: it is on node ${nodeName}`, { reason: 'Conflict' })
    return { spec: { nodeName: act.node } }
  }
  const { conditions = [] } = (status ?? {}) as { conditions?: { type: string }[] }
  const { reason, message = '' } = act
  const type = act.act === 'Approve' ? 'Approved' : 'Denied'
  const others = conditions.filter((one) => one.type !== type)
  return { status: { conditions: [...others, { type, status: 'True', reason, message }] } }
}

const counted = (
  { object, taking }: Pick<MetadataWrite, 'object' | 'taking'>,
  taken: readonly TakenField[],
): KubeObject => (taking === undefined || taken.length === 0 ? object : asTakenBack(object, taking, taken))

function created(memory: Memory, object: KubeObject): KubeObject {
  try {
    return memory.create(object)
  } catch (error) {
    if (error instanceof MemoryRefusal) throw new ConflictError(error.message, { cause: error })
    throw error
  }
}
