import type { Effect, KubeObject, Outcome, RunInput } from '#contracts'
import type { UnsettledError } from '#reconcile'
import type { Kind, Reconciler } from '#sdk'
import { changesBetween, cut, fieldsBetween, NeverIdle, TWO_CALLS, TWO_CALLS_DIFFER } from './broken.ts'
import { decided, decidedTwice, invokeOf, nameOf, thatAlwaysReturns } from './given.ts'
import type { SimulatedWrite } from './simulated-run.ts'

/** Who changes the objects of a simulation. */
type Actor = 'function' | 'cluster'

interface ChangedField {
  by: Actor
  object: string
  path: string
  /** What it was before, and what the actor has set since. */
  values: unknown[]
  /** What others see of it: that of objects beside the reconciled one comes first, its status comes last. */
  rank: number
}

/** A field counts as changed again and again from so many values on. */
const REPEATED = 3
/** With so many values of a field, or of a status, the loop has been seen. */
const SEEN = { field: 4, status: 8 }
/** The limits of what the error shows. */
const MOST_VALUES = 4
const MOST_FIELDS = 8
const LONGEST_VALUE = 60
/** Fields that the API server sets, or that follow from other changes. */
const SERVERS = new Set(['resourceVersion', 'generation', 'uid', 'creationTimestamp'])
const NOTES = 'fairlead.dev/'
const CONSEQUENCE = /\.(observedGeneration|lastTransitionTime)$/

/** What runs of a simulation change that never becomes idle, and who changes it. */
export class Loop {
  /** Whether it became idle all the same. */
  hasEnded = false
  readonly #fields = new Map<string, ChangedField>()
  readonly #primary: string

  constructor(primary: KubeObject | undefined) {
    this.#primary = primary === undefined ? '' : nameOf(primary)
  }

  note(by: Actor, before: KubeObject | undefined, after: KubeObject | undefined): void {
    const one = after ?? before
    if (one === undefined) return
    const object = nameOf(one)
    for (const { path, before: old, after: young } of fieldsBetween(contentOf(before), contentOf(after))) {
      if (CONSEQUENCE.test(path)) continue
      const key = `${by} ${object} ${path}`
      const rank = object !== this.#primary ? 0 : path.startsWith('.status') ? 2 : 1
      const field = this.#fields.get(key) ?? { by, object, path, values: [path === '' ? undefined : old], rank }
      // A whole object: that it was made, or deleted.
      field.values.push(path === '' ? young !== undefined : young)
      this.#fields.set(key, field)
    }
  }

  /** Whether more runs would show nothing else. */
  get isSeen(): boolean {
    return this.by('function').some(({ values, rank }) => values.length >= (rank < 2 ? SEEN.field : SEEN.status))
  }

  /** Returns what the actor changes again and again; if there is nothing, what it changes at all. */
  by(actor: Actor): ChangedField[] {
    const all = [...this.#fields.values()].filter(({ by }) => by === actor)
    const repeated = all.filter(({ values }) => values.length >= REPEATED)
    return (repeated.length > 0 ? repeated : all).sort((one, other) => one.rank - other.rank)
  }
}

/** Returns what clients set, without the notes of the platform. */
export function contentOf(object: KubeObject | undefined): unknown {
  if (object === undefined) return undefined
  const { annotations = {}, ...others } = object.metadata
  const metadata = Object.entries(others).filter(([name]) => !SERVERS.has(name))
  const notes = Object.entries(annotations).filter(([name]) => !name.startsWith(NOTES))
  return { ...object, metadata: { ...Object.fromEntries(metadata), annotations: Object.fromEntries(notes) } }
}

interface Seen {
  /** The inputs of the function, in order. */
  inputs: readonly RunInput[]
  /** The error of a run that asked for changes for ever, if it was one run. */
  within: UnsettledError | undefined
  failure: Error | undefined
  now: Date
  timer: Date | undefined
  writes: readonly SimulatedWrite[]
  effects: readonly Effect[]
}

/**
 * Returns the error of a simulation that never becomes idle: who goes on, with what, and with which values. `trace`:
 * returns what further runs of the reconciler change.
 */
export async function neverIdle<For extends Kind<unknown>>(
  reconciler: Reconciler<For>,
  seen: Seen,
  trace: (reconciler: Reconciler<For>) => Promise<Loop>,
): Promise<NeverIdle> {
  const { name } = reconciler
  const { inputs, within, failure, now, timer } = seen
  const invoke = invokeOf(reconciler)
  const [before, input] = inputs.slice(-2)
  if (before !== undefined && input !== undefined) {
    const [first, second] = await decidedTwice(invoke, input)
    const ownLines = changesBetween(first, second)
    if (ownLines.length > 0) return new NeverIdle(TWO_CALLS_DIFFER, { lines: ownLines, sides: TWO_CALLS })
    const lines = within === undefined ? [] : changesBetween(await decided(invoke, before), first)
    const sides = ['last decision but one', 'last decision'] as const
    if (lines.length > 0) return new NeverIdle('its last two decisions differ', { lines, sides, because: within })
  }
  const outcome = input && (await invoke(input).catch(() => undefined))
  const loop = await trace(reconciler)
  if (timer !== undefined && timer <= now) return dueForEver(name, seen, outcome, loop)
  const constant = await trace(thatAlwaysReturns(reconciler, outcome ?? {}))
  if (!constant.hasEnded && constant.by('cluster').length > 0) return clusterForEver(name, constant)
  const fields = loop.by('function')
  const [first] = fields
  const lines = [...linesOf(name, fields), ...linesOf('the cluster', loop.by('cluster'))]
  if (first !== undefined) {
    const answers = loop.by('cluster').length > 0 ? ', and the cluster only answers' : ''
    const headline = `${name} never becomes idle: it changes ${called(first)} again and again${answers}`
    return new NeverIdle(headline, { lines, because: failure })
  }
  const asked = asksOf(seen)
  const found = { lines: [...asked.lines, ...lines], because: failure }
  return new NeverIdle(`${name} never becomes idle: it asks for ${asked.what} again and again`, found)
}

function dueForEver(name: string, seen: Seen, outcome: Outcome | undefined, loop: Loop): NeverIdle {
  const { inputs, failure, now } = seen
  const of = inputs.at(-1)?.finalizing === true ? 'finalize' : 'reconcile'
  const time = now.toISOString()
  const lines = linesOf(name, loop.by('function'))
  if (failure !== undefined)
    return new NeverIdle(`${name} never becomes idle: its error asks to be tried again at once`, {
      because: failure,
      lines,
    })
  const { requeueAt, requeueAfterSeconds } = outcome ?? {}
  const [returned, line] =
    requeueAt !== undefined && requeueAt <= time
      ? ['a requeueAt that is not later than now', `requeueAt: ${requeueAt}, now: ${time}`]
      : ['a requeueAfter of no time', `requeueAfter: ${requeueAfterSeconds ?? 0}`]
  const headline = `${name} never becomes idle: "${of}" returns ${returned}, so it runs again at once`
  return new NeverIdle(headline, { lines: [line, ADVICE, ...lines] })
}

const ADVICE = 'return a time that is to come, or none where there is nothing to wait for'

/** Returns the error of a function that runs at each timer for nothing. */
export const polling = (name: string, seconds: number, times: number): NeverIdle =>
  new NeverIdle(`${name} runs every ${seconds} s and writes nothing, ${times} times on end`, {
    lines: ['return the time of its next change as requeueAt; a change of an object that it reads needs no timer'],
  })

/** A function that decides the same each time would not come to rest either. */
function clusterForEver(name: string, constant: Loop): NeverIdle {
  const [theirs, ours] = [constant.by('cluster'), constant.by('function')]
  const lines = [...linesOf('the cluster', theirs), ...linesOf(name, ours)]
  const contested = theirs.find(({ object, path }) => ours.some((one) => one.object === object && one.path === path))
  if (contested !== undefined) {
    const headline = `${name} never becomes idle: the cluster sets ${called(contested)} otherwise after each of its runs`
    return new NeverIdle(headline, { lines })
  }
  const [first] = theirs
  const what = first === undefined ? 'something' : called(first)
  return new NeverIdle(`the cluster never becomes idle: it changes ${what} again and again`, { lines })
}

/** Returns what the cluster changes again and again, with its values. */
export const theirChange = (loop: Loop): string => linesOf('it', loop.by('cluster')).slice(0, 1).join()

const called = ({ object, path }: ChangedField): string => (path === '' ? object : `${path} of ${object}`)

function linesOf(actor: string, fields: readonly ChangedField[]): string[] {
  const lines = fields.slice(0, MOST_FIELDS).map(({ object, path, values }) => {
    const verb = path === '' ? 'makes and deletes' : 'sets'
    return cut(`${actor} ${verb} ${object}${path === '' ? '' : ` ${path}: ${valuesOf(values)}`}`)
  })
  return fields.length > MOST_FIELDS ? [...lines, `${actor} changes ${fields.length - MOST_FIELDS} more fields`] : lines
}

const valuesOf = (values: readonly unknown[]): string =>
  [...values.slice(0, MOST_VALUES).map(shown), ...(values.length > MOST_VALUES ? ['…'] : [])].join(' → ')

const shown = (value: unknown): string => {
  const text = value === undefined ? 'nothing' : JSON.stringify(value)
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE)}…` : text
}

/** What it asks for in the last runs, where this changes no object. */
function asksOf({ writes, effects }: Seen): { what: string; lines: string[] } {
  const effect = effects.at(-1)
  const write = writes.at(-1)
  if (effect !== undefined)
    return {
      what: `effect ${effect.kind}`,
      lines: [...new Set(effects.slice(-3).map((one) => cut(JSON.stringify(one))))],
    }
  if (write !== undefined) return { what: `${write.verb} of ${nameOf(write.object)}`, lines: [] }
  return { what: 'another run', lines: [] }
}
