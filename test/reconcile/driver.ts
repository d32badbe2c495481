import { expect } from 'vitest'
import type { KubeObject } from '#contracts'
import { type Answer, type Ask, deepFreeze, type Note, type Reconciled, reconciled, run } from '#reconcile'
import { finalizerOf, reconcilerSpec } from '#spec'
import { CONFIG_MAPS, ownedByWidget, PODS, SECRETS, WIDGETS, widget, world } from '../dispatch/objects.ts'

const NOW = new Date('2030-01-01T00:00:00Z')
export const FINALIZER = finalizerOf('widget')

/** A reconciler for widgets that owns pods, ConfigMaps and Secrets. */
export function widgets(more: object = {}): Reconciled {
  const spec = reconcilerSpec.parse({
    for: WIDGETS,
    owns: [PODS, CONFIG_MAPS, SECRETS],
    invoke: { pull: {} },
    backoff: { initialSeconds: 1, maxSeconds: 60, jitter: 0 },
    ...more,
  })
  return reconciled('widget', spec, ({ resource }) => resource === 'secrets')
}

/** What a test answers: to each Ask of a kind in turn, then the last again. */
export type Script = Partial<{ [Kind in Ask['do']]: readonly (Answer | ((ask: Ask) => Answer))[] }>

/** A request of a run, the notes that it has told before, and the answer. */
export interface Step {
  ask: Ask
  notes: readonly Note[]
  answer: Answer
}

/** What a run is given at its start. Left out: it is the first of its key. */
export type Start = Partial<Parameters<typeof run>[1]>

/** All steps of a run that `answer` answers. */
export function stepsOf(answer: (ask: Ask) => Answer, of = widgets(), start: Start = {}): Step[] {
  const steps: Step[] = []
  let notes: Note[] = []
  const asks = run(of, { attempt: 0, ...start, random: 0.5, tell: (note) => notes.push(note) })
  let asked = asks.next()
  while (!asked.done) {
    const step = { ask: asked.value, notes, answer: answer(asked.value) }
    notes = []
    // Nothing that the run has asked or told is changed later.
    steps.push(deepFreeze(step))
    asked = asks.next(step.answer)
  }
  expect(steps.at(-1)?.ask).toEqual({ do: 'finish', finish: asked.value })
  return steps
}

/** All steps of a run whose asks are answered by the script; what it leaves out succeeds. */
export function drive(script: Script, of = widgets(), start: Start = {}): Step[] {
  const asked: Record<string, number> = {}
  const answer = (ask: Ask): Answer => {
    const answers = script[ask.do] ?? []
    const count = (asked[ask.do] = (asked[ask.do] ?? 0) + 1)
    const chosen = answers[Math.min(count, answers.length) - 1]
    if (chosen === undefined || (ask.do === 'finish' && count > answers.length)) return succeeds(ask)
    return typeof chosen === 'function' ? chosen(ask) : chosen
  }
  return stepsOf(answer, of, start)
}

export const sees = (object: KubeObject = widget(), ...owned: KubeObject[]): Answer => ({
  did: 'observe',
  seen: { world: world(object, ...owned), now: NOW, seed: 's', noOps: {} },
})
export const GONE: Answer = { did: 'observe', seen: undefined }
export const fails = (failed: unknown, server?: { retryAfterSeconds: number | undefined }): Answer => ({
  failed,
  ...(server && { server }),
})
export const returns = (returned: unknown): Answer => ({ did: 'call', returned })

let version = 1000

/** As the API server answers: the object as it was sent, in a new version. */
export const stored = (object: KubeObject, more: object = {}): KubeObject => ({
  ...object,
  ...more,
  metadata: {
    ...object.metadata,
    uid: object.metadata.uid ?? `uid-${object.metadata.name}`,
    resourceVersion: `${++version}`,
    ownerReferences: object.kind === 'Widget' ? [] : [ownedByWidget()],
  },
})

export function succeeds(ask: Ask): Answer {
  switch (ask.do) {
    case 'observe':
      return sees()
    case 'call':
      return returns({})
    case 'read':
      return { did: 'read', external: [] }
    case 'perform':
      return { did: 'perform', result: null }
    case 'write':
      return {
        did: 'write',
        results: ask.writes.map(({ verb, object }) => ({
          object: verb === 'delete' ? undefined : stored(object),
          isOld: false,
        })),
      }
    case 'writeStatus': {
      const status = { ...(ask.object.status as object), ...(ask.patch.status as object) }
      return { did: 'writeStatus', result: { object: stored(ask.object, { status }), isOld: false } }
    }
    case 'writeMetadata':
      return {
        did: ask.do,
        result: {
          object: stored({ ...ask.object, metadata: { ...ask.object.metadata, ...ask.write.object.metadata } }),
          isOld: false,
        },
      }
    case 'delete':
      return { did: ask.do, result: { object: undefined, isOld: false } }
    case 'writeFinalizers': {
      const { metadata } = ask.object
      const object = stored({ ...ask.object, metadata: { ...metadata, finalizers: ask.finalizers } })
      return { did: 'writeFinalizers', result: { object, isOld: false } }
    }
    case 'writeRecord': {
      const { metadata } = ask.object
      const { [ask.annotation]: _, ...annotations } = metadata.annotations ?? {}
      const recorded = { ...annotations, ...(ask.value !== undefined && { [ask.annotation]: ask.value }) }
      return {
        did: ask.do,
        result: { object: stored({ ...ask.object, metadata: { ...metadata, annotations: recorded } }), isOld: false },
      }
    }
    case 'writeFields':
      return { did: ask.do, results: ask.writes.map(({ object }) => ({ object: stored(object), isOld: false })) }
    case 'act':
      return { did: ask.do, results: ask.acts.map(() => ({})) }
    case 'wait':
      return { did: 'wait' }
    case 'finish':
      return { did: 'finish', changed: false }
  }
}

/** `observe call write …`, and how it ended. */
export const asksOf = (steps: readonly Step[]): string => steps.map(({ ask }) => ask.do).join(' ')

export const endOf = (steps: readonly Step[]) => {
  const ask = steps.at(-1)?.ask
  return ask?.do === 'finish' ? ask.finish : undefined
}
