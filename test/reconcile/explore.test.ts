import { isDeepStrictEqual } from 'node:util'
import { expect, it } from 'vitest'
import { ConflictError, type KubeObject, TerminalError } from '#contracts'
import { type Answer, type Ask, GoneError, isFinalizing, RefusedError } from '#reconcile'
import { holdsFinalizer, PAUSED_ANNOTATION } from '#spec'
import { child, widget } from '../dispatch/objects.ts'
import { randomFrom } from '../support/random.ts'
import { drive, FINALIZER, fails, GONE, returns, type Step, sees, stored, succeeds, widgets } from './driver.ts'

const RUNS = 3000
const seed = Number(process.env['FAIRLEAD_SEED'] ?? Math.floor(Math.random() * 2 ** 31))

const POD = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p' } }
const MAP = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'c' }, data: { a: '1' } }
const MOUNTS = { ...POD, metadata: { name: 'q' }, spec: { volumes: [{ configMap: { name: 'c' } }] } }

const EVICTION = [{ act: 'Evict', on: { ...POD, metadata: { name: 'p', namespace: 'default' } } }]
const BUDGET = { reason: 'DisruptionBudget', message: 'not now', retryAfterSeconds: undefined }

const OLD = 'example.com/old'
const OBJECTS: KubeObject[] = [
  widget(),
  widget({ metadata: { annotations: { [PAUSED_ANNOTATION]: 'true' } } }),
  widget({ metadata: { namespace: 'elsewhere' } }),
  widget({ metadata: { finalizers: [FINALIZER] } }),
  widget({ metadata: { finalizers: [FINALIZER], deletionTimestamp: '2030-01-01T00:00:00Z' } }),
  widget({ metadata: { deletionTimestamp: '2030-01-01T00:00:00Z' } }),
  widget({ metadata: { finalizers: [OLD, FINALIZER] } }),
  widget({ metadata: { finalizers: [OLD], deletionTimestamp: '2030-01-01T00:00:00Z' } }),
  widget({
    metadata: { finalizers: [OLD, FINALIZER], deletionTimestamp: '2030-01-01T00:00:00Z', labels: { left: 'true' } },
  }),
]
const OUTCOMES = [
  {},
  { apply: [POD] },
  { apply: [POD, MAP], status: { phase: 'Up' } },
  { apply: [MAP, MOUNTS], conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }] },
  { apply: [] },
  { requeueAfterSeconds: 1 },
  { metadata: { labels: { size: 's' } } },
  { deleteObject: true },
  { effect: { kind: 'add' } },
  { patch: [{ apiVersion: 'v1', kind: 'Node', metadata: { name: 'n' }, spec: { unschedulable: true } }] },
  { patch: [] },
  { apply: [POD], effect: { kind: 'drop' } },
  { act: EVICTION, conditions: [{ type: 'Ready', status: 'False', reason: 'Down' }] },
  { act: EVICTION, deleteObject: true },
  { apply: [POD, MAP], act: EVICTION },
  { apply: 'nonsense' },
]
const FAILURES = [
  fails(new ConflictError('moved')),
  fails(new GoneError('gone')),
  fails(new RefusedError('no', { reason: 'Forbidden' })),
  fails(
    new RefusedError('theirs', { reason: 'FieldConflict', taken: [{ field: '.spec.unschedulable', manager: 'x' }] }),
  ),
  fails(new TerminalError('bad')),
  fails(new Error('away'), { retryAfterSeconds: undefined }),
]

/** Any answer that a driver may give. */
function anyAnswer(ask: Ask, random: () => number): Answer {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!
  if (random() < 0.15) return pick(FAILURES)
  const isOld = random() < 0.1
  switch (ask.do) {
    case 'observe':
      return random() < 0.05
        ? GONE
        : sees(stored(pick(OBJECTS), {}), ...(random() < 0.5 ? [child('Pod', 'p'), child('ConfigMap', 'd')] : []))
    case 'call':
      return returns(pick(OUTCOMES))
    case 'read':
      if (random() < 0.1) return { did: 'read', limitedMs: 1000 }
      return { did: 'read', external: Math.floor(random() * 3) }
    case 'perform':
      return random() < 0.05 ? { did: 'perform', isSkipped: true } : { did: 'perform', result: null }
    case 'write':
      return {
        did: 'write',
        results: ask.writes.map((write) =>
          random() < 0.2 ? (pick(FAILURES) as { failed: unknown }) : { object: stored(write.object), isOld },
        ),
      }
    case 'writeStatus':
      if (ask.mayBeDropped && random() < 0.2) return { did: 'writeStatus', result: 'dropped' }
      return succeeds(ask)
    case 'writeFields':
      return {
        did: ask.do,
        results: ask.writes.map((write) =>
          random() < 0.2 ? (pick(FAILURES) as { failed: unknown }) : { object: stored(write.object), isOld },
        ),
      }
    case 'act':
      return {
        did: ask.do,
        results: ask.acts.map(() =>
          random() < 0.3
            ? (pick(FAILURES) as { failed: unknown })
            : pick([{}, { isPast: true } as const, { waits: BUDGET }]),
        ),
      }
    case 'writeMetadata':
    case 'writeRecord':
    case 'delete':
    case 'writeFinalizers':
    case 'wait':
    case 'finish':
      return succeeds(ask)
  }
}

it(`every run of ${RUNS} with any answers ends, and keeps the rules of a run; FAIRLEAD_SEED=${seed}`, () => {
  const random = randomFrom(seed)
  const of = widgets({
    for: { ...widgets().spec.for, namespaces: ['default'], selector: '!left' },
    finalize: true,
    formerFinalizers: [OLD],
    writes: ['Metadata', 'Deletion'],
    patches: [{ group: '', version: 'v1', resource: 'nodes', kind: 'Node', takes: ['spec.unschedulable'] }],
    acts: [{ group: '', version: 'v1', resource: 'pods', kind: 'Pod', act: 'Evict' }],
    external: {},
  })
  const repeated: string[] = []
  let refused = new Set<string>()
  /** Refuses no write twice in a pass, since a refused write is not sent again. */
  const any = (ask: Ask): Answer => {
    if (ask.do === 'observe' && ask.begins) refused = new Set()
    const answer = anyAnswer(ask, random)
    if (ask.do !== 'write') return answer
    for (const [index, write] of ask.writes.entries()) {
      const said = JSON.stringify([
        write.verb,
        write.object.kind,
        write.object.metadata.name,
        write.object.metadata.uid,
      ])
      if (refused.has(said)) repeated.push(said)
      const result = 'did' in answer && answer.did === 'write' ? answer.results[index] : undefined
      if (result !== undefined && 'failed' in result && result.failed instanceof RefusedError) refused.add(said)
    }
    return answer
  }
  const forever = Array.from({ length: 100 }, () => any)
  const script = {
    observe: forever,
    call: forever,
    read: forever,
    perform: forever,
    write: forever,
    writeStatus: forever,
    writeFinalizers: forever,
    finish: Array.from({ length: 3 }, () => ({ did: 'finish', changed: true }) as const),
  }
  for (let run = 0; run < RUNS; run++) {
    const steps = drive(script, of, { attempt: run % 4 })
    expect(steps.at(-1)?.ask.do).toBe('finish')
    expect(steps.filter(({ ask }) => ask.do === 'observe' && ask.begins).length).toBeLessThanOrEqual(5)
    expect(breaches(steps)).toEqual([])
    expect(repeated).toEqual([])
  }
})

/** Returns forbidden steps of a run. */
function breaches(steps: readonly Step[]): string[] {
  const found: string[] = []
  const known = new Known()
  let called: unknown
  let isRead = false
  for (const { ask, answer } of steps) {
    const { object } = known
    const isWaiting =
      object !== undefined &&
      (holdsFinalizer(object, 'widget') || isFinalizing(object, 'widget', { formerFinalizers: [OLD] }))
    const isRefused = known.isRefused()
    if (ask.do === 'observe' && ask.begins) called = undefined
    if (ask.do === 'write' && object?.metadata.deletionTimestamp !== undefined && !isWaiting)
      found.push('a write for an object that does not wait')
    if (isRefused && ask.do === 'write' && ask.writes.some((write) => write.verb === 'delete' && write.isPruned))
      found.push('a deletion while a write is refused')
    if (isRefused && ask.do === 'perform') found.push('an effect while a write is refused')
    if (isRefused && ask.do === 'act') found.push('an act while a write is refused')
    if (ask.do === 'act' && ask.acts.some((act) => known.acted.has(act.fingerprint)))
      found.push('an act that the pass has sent')
    if (known.isActing && ask.do === 'delete') found.push('the deletion of the object while the function acts')
    if (known.isActing && ask.do === 'writeFinalizers' && !ask.finalizers.includes(FINALIZER))
      found.push('the release of the object while the function acts')
    if (ask.do === 'writeFinalizers' && object?.metadata.finalizers?.includes(OLD)) {
      if (object.metadata.deletionTimestamp === undefined && !ask.finalizers.includes(OLD))
        found.push('a former finalizer that is taken from an object that lives')
      const isSelected = object.metadata.labels?.['left'] === undefined
      if (ask.finalizers.includes(OLD) !== (ask.finalizers.includes(FINALIZER) || !isSelected))
        found.push(
          'a former finalizer that is not removed together with that of the function, and only from its objects',
        )
    }
    if (ask.do === 'observe') isRead = false
    if (ask.do === 'read') isRead = true
    if (ask.do === 'call' && !isRead) found.push('a call without a read after the last observation')
    if (ask.do === 'perform' && known.performed.has(ask.input.effect.kind))
      found.push('an effect that the run has performed')
    if (isRefused && ask.do === 'delete') found.push('the deletion of the object while a write is refused')
    if (isRefused && ask.do === 'writeStatus') {
      const { conditions = [] } = ask.patch.status as { conditions?: { type: string; status: string }[] }
      if (conditions.some(({ type, status }) => type === 'Ready' && status === 'True'))
        found.push('a Ready that is True while a write is refused')
    }
    known.learn(ask, answer)
    if (ask.do !== 'call') continue
    if (isDeepStrictEqual(ask.input, called)) found.push('a call with the input of the call before')
    if (object?.metadata.annotations?.[PAUSED_ANNOTATION] !== undefined) found.push('a call for a paused object')
    if (!isWaiting) found.push('a call for an object without its finalizer')
    called = ask.input
  }
  return found
}

/** What the answers before a step have told the run. */
class Known {
  object: KubeObject | undefined
  /** The kinds of the effects that the run has performed. */
  readonly performed = new Set<string>()
  /** The acts that the pass has sent. */
  readonly acted = new Set<string>()
  /** Whether the last outcome of the pass has acts. */
  isActing = false
  #owned = new Set<string>()
  #wanted: string[] | undefined
  readonly #refused = { apply: new Set<string>(), delete: new Set<string>() }

  /** Whether the last outcome requires a write that was refused in this pass. */
  isRefused(): boolean {
    const { apply, delete: kept } = this.#refused
    const wanted = this.#wanted
    if (wanted === undefined) return false
    return (
      wanted.some((name) => apply.has(name)) ||
      [...kept].some((name) => this.#owned.has(name) && !wanted.includes(name))
    )
  }

  learn(ask: Ask, answer: Answer): void {
    if (ask.do === 'observe' && ask.begins) {
      this.acted.clear()
      this.isActing = false
    }
    if (ask.do === 'act') for (const act of ask.acts) this.acted.add(act.fingerprint)
    if (ask.do === 'perform' && !('failed' in answer && answer.failed instanceof ConflictError))
      this.performed.add(ask.input.effect.kind)
    if ('failed' in answer) return
    if (ask.do === 'observe' && answer.did === 'observe' && answer.seen !== undefined) {
      if (ask.begins) for (const names of Object.values(this.#refused)) names.clear()
      this.object = answer.seen.world.object
      this.#owned = new Set(answer.seen.world.owned.map((child) => nameOf(child.object)))
      // Somebody else has created it meanwhile, and nothing is written to it again.
      for (const { resource, object } of answer.seen.world.owned)
        if (resource.strategy === 'CreateOnly') this.#refused.apply.delete(nameOf(object))
    }
    if (answer.did === 'call') this.isActing = 'act' in (answer.returned as object)
    if (answer.did === 'call') this.#learnOutcome(answer.returned as { apply?: KubeObject[] | string })
    if ('result' in answer && answer.did !== 'perform' && answer.result !== 'dropped')
      this.object = answer.result.object ?? this.object
    if (ask.do !== 'write' || answer.did !== 'write') return
    for (const [index, { verb, object }] of ask.writes.entries()) {
      const result = answer.results[index]!
      const kind = verb === 'delete' ? 'delete' : 'apply'
      if (!('failed' in result)) this.#owned[result.object === undefined ? 'delete' : 'add'](nameOf(object))
      else if (result.failed instanceof RefusedError) this.#refused[kind].add(nameOf(object))
    }
  }

  /** The outcome that is not valid changes nothing: the run fails. */
  #learnOutcome({ apply }: { apply?: KubeObject[] | string }): void {
    if (typeof apply !== 'string') this.#wanted = apply?.map(nameOf)
  }
}

const nameOf = ({ kind, metadata }: KubeObject): string => `${kind} ${metadata.name}`
