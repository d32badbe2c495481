import type { EventReport, KubeObject } from 'fairlead'
import type { Hook } from './controller.ts'
import type { HookName } from './hook.ts'

/** The longest wait: what an object waits for while it is finalized runs it anyway. */
export const TEN_YEARS_S = 315_576_000

/** A kind, and its objects of one parent. */
export interface Group {
  apiVersion: string
  kind: string
  objects: readonly KubeObject[]
}

/**
 * Returns the objects as hooks get them: by `KIND.APIVERSION`, each group present, and then by name. In v1 the name has the
 * namespace if only the object is in one, in v2 always.
 */
export const objectMap = (groups: readonly Group[], parent: KubeObject, { version }: Pick<Hook, 'version'>) =>
  Object.fromEntries(
    groups.map(({ apiVersion, kind, objects }) => [
      `${kind}.${apiVersion}`,
      Object.fromEntries(objects.map((object) => [keyOf(object, parent, version), object])),
    ]),
  )

function keyOf({ metadata: { namespace, name } }: KubeObject, parent: KubeObject, version: Hook['version']): string {
  const isLong = namespace !== undefined && (version === 'v2' || parent.metadata.namespace === undefined)
  return isLong ? `${namespace}/${name}` : name
}

/** The fields of the answers of a kind of controllers. `objects`: that of the objects that the hook wants. */
interface AnswerFields {
  objects: string
  others: readonly string[]
}

/** Of Fairlead: Events that the object gets. Nothing else follows from it. */
const EVENTS = 'events'
const FIELDS = ['status', 'resyncAfterSeconds', 'finalized', EVENTS]
export const COMPOSITE_FIELDS: AnswerFields = { objects: 'children', others: FIELDS }
export const DECORATOR_FIELDS: AnswerFields = { objects: 'attachments', others: ['labels', 'annotations', ...FIELDS] }

/** What a sync or finalize hook has answered. */
export interface HookAnswer {
  objects: KubeObject[]
  status: Record<string, unknown> | undefined
  /** Without those that the hook wants removed. */
  labels: Record<string, string> | undefined
  annotations: Record<string, string> | undefined
  /** 0: none. */
  resyncAfterSeconds: number
  finalized: boolean
  events: EventReport[]
}

/**
 * Returns the answer in a text. Throws an Error for a text from which nothing may follow: an answer without any known field,
 * or with an unknown one and without that of the objects, would delete all of them; and in strict mode for each unknown or
 * repeated field.
 */
export function answerOf(name: HookName, hook: Hook, text: string, fields: AnswerFields): HookAnswer {
  const refuse = (why: string): never => {
    throw new Error(`the ${name} hook answered ${why}`)
  }
  const answer = answerIn(text, hook, fields, refuse)
  const given = <T>(field: string, isValid: (value: unknown) => value is T, what: string): T | undefined => {
    const value = answer[field] ?? undefined
    if (value !== undefined && !isValid(value)) refuse(`with "${field}" that is no ${what}`)
    return value as T | undefined
  }
  const objects = given(fields.objects, isList, 'list') ?? []
  const texts = (field: string) => {
    const map = given(field, isTextMap, 'map of text')
    return (
      map && (Object.fromEntries(Object.entries(map).filter(([, value]) => value !== null)) as Record<string, string>)
    )
  }
  return {
    objects: objects.map(
      (object, index) =>
        asObject(object) ??
        refuse(
          `with ${fields.objects}[${index}], which is no object with apiVersion, kind and metadata.name, and labels and annotations as text`,
        ),
    ),
    status: given('status', isRecord, 'object'),
    labels: fields.others.includes('labels') ? texts('labels') : undefined,
    annotations: fields.others.includes('annotations') ? texts('annotations') : undefined,
    resyncAfterSeconds: Math.min(TEN_YEARS_S, Math.max(0, given('resyncAfterSeconds', isNumber, 'number') ?? 0)),
    finalized: given('finalized', isBoolean, 'boolean') === true,
    events: (given(EVENTS, isList, 'list') ?? []) as EventReport[],
  }
}

/** Returns the object in a text. `known`: its fields. Refuses each unknown or repeated one in strict mode. */
export function recordIn(
  text: string,
  { version, webhook }: Hook,
  known: readonly string[],
  refuse: (why: string) => never,
): Record<string, unknown> {
  let answer: unknown
  try {
    answer = JSON.parse(text)
  } catch {
    // The message would quote what may be of a Secret.
    return refuse(`with no valid JSON, in ${text.length} characters`)
  }
  if (!isRecord(answer)) return refuse('with JSON that is no object')
  const unknown = Object.keys(answer).filter((field) => !known.includes(field))
  const isStrict = (webhook?.responseUnMarshallMode ?? (version === 'v2' ? 'strict' : 'loose')) === 'strict'
  if (isStrict && unknown.length > 0)
    return refuse(`with the unknown field ${JSON.stringify(unknown[0])} (strict mode)`)
  const twice = isStrict ? repeatedField(text) : undefined
  if (twice !== undefined) return refuse(`with ${JSON.stringify(twice)} twice (strict mode)`)
  return answer
}

function answerIn(
  text: string,
  hook: Hook,
  { objects, others }: AnswerFields,
  refuse: (why: string) => never,
): Record<string, unknown> {
  const known = [objects, ...others]
  const answer = recordIn(text, hook, known, refuse)
  const unknown = Object.keys(answer).filter((field) => !known.includes(field))
  if (Object.keys(answer).every((field) => field === EVENTS || unknown.includes(field)))
    return refuse(`without any field that is known (${known.join(', ')}), which would delete all ${objects}`)
  if (unknown.length > 0 && answer[objects] === undefined)
    return refuse(`with ${JSON.stringify(unknown[0])} and without "${objects}", which would delete all ${objects}`)
  return answer
}

const isList = (value: unknown): value is unknown[] => Array.isArray(value)
const isNumber = (value: unknown): value is number => typeof value === 'number'
const isBoolean = (value: unknown): value is boolean => typeof value === 'boolean'
const isTextMap = (value: unknown): value is Record<string, string | null> =>
  isRecord(value) && Object.values(value).every((one) => one === null || typeof one === 'string')

/** Leaves out an empty namespace, and the fields that an outcome of Fairlead has beside an object. */
function asObject(value: unknown): KubeObject | undefined {
  if (!isRecord(value) || !isRecord(value['metadata'])) return undefined
  const { stage: _, retain: __, metadata: given, ...content } = value
  const isGiven = ([field, one]: [string, unknown]) => field !== 'namespace' || (one !== null && one !== '')
  const metadata: Record<string, unknown> = Object.fromEntries(Object.entries(given).filter(isGiven))
  const { apiVersion, kind } = content
  const texts = [apiVersion, kind, metadata['name']]
  if (!texts.every((text) => typeof text === 'string' && text !== '')) return undefined
  const maps = [metadata['labels'] ?? {}, metadata['annotations'] ?? {}]
  const areTexts = maps.every((map) => isRecord(map) && Object.values(map).every((one) => typeof one === 'string'))
  return areTexts ? ({ ...content, metadata } as unknown as KubeObject) : undefined
}

/** Leaves out `null` in metadata, which means nothing. */
export const withoutNull = ({ metadata, ...content }: KubeObject): KubeObject => ({
  ...content,
  metadata: Object.fromEntries(
    Object.entries(metadata).filter(([, value]) => value !== null),
  ) as unknown as KubeObject['metadata'],
})

/** Returns a field that the object in the text has twice. `JSON.parse` takes the last one, and does not tell. */
function repeatedField(text: string): string | undefined {
  const seen = new Set<string>()
  let depth = 0
  let start: number | undefined
  for (const { 0: token, index } of text.matchAll(/\\.|["[\]{}]/g)) {
    if (token === '"' && start === undefined) start = index
    else if (token === '"') {
      const name = depth === 1 && isBeforeColon(text, index + 1) ? text.slice(start, index + 1) : undefined
      start = undefined
      if (name === undefined) continue
      const field = JSON.parse(name) as string
      if (seen.has(field)) return field
      seen.add(field)
    } else if (start === undefined && (token === '{' || token === '[')) depth++
    else if (start === undefined && (token === '}' || token === ']')) depth--
  }
  return undefined
}

function isBeforeColon(text: string, at: number): boolean {
  const colon = /\s*:/y
  colon.lastIndex = at
  return colon.test(text)
}

/** The conditions that Fairlead sets itself. */
const OURS = ['Reconciled', 'Paused', 'Contested']

export interface StatusOutcome {
  status: Record<string, unknown>
  conditions: (
    | { type: string; status: 'True' | 'False' | 'Unknown'; reason: string; message?: string }
    | { type: string; status: null }
  )[]
}

/**
 * Returns the status of an answer as an outcome: it replaces the status whole, with its conditions. `before` is the status of
 * the parent. A condition without a valid reason gets one, which metav1 demands.
 */
export function statusOutcome(name: HookName, given: Record<string, unknown>, before: unknown): StatusOutcome {
  const { conditions: set, observedGeneration: _, ...status } = given
  const conditions = set ?? []
  const parsed = Array.isArray(conditions) ? conditions.map(asCondition) : [undefined]
  if (parsed.includes(undefined))
    throw new Error(
      `the ${name} hook answered with status.conditions that are no list of type, status, reason and message`,
    )
  const wanted = (parsed as Condition[]).filter(({ type }) => !OURS.includes(type))
  const there = isRecord(before) && Array.isArray(before['conditions']) ? before['conditions'] : []
  const types = there.flatMap((one) => (isRecord(one) && typeof one['type'] === 'string' ? [one['type']] : []))
  const gone = types.filter((type) => !OURS.includes(type) && !wanted.some((one) => one.type === type))
  return { status, conditions: [...wanted, ...gone.map((type) => ({ type, status: null }))] }
}

type Condition = Exclude<StatusOutcome['conditions'][number], { status: null }>

/** The form that metav1.Condition demands of a reason. */
const REASON = /^[A-Za-z](?:[A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?$/

function asCondition(value: unknown): Condition | undefined {
  if (!isRecord(value)) return undefined
  const { type, status, reason, message } = value
  const isValid =
    typeof type === 'string' &&
    (status === 'True' || status === 'False' || status === 'Unknown') &&
    (reason === undefined || typeof reason === 'string') &&
    (message === undefined || typeof message === 'string')
  if (!isValid) return undefined
  return {
    type,
    status,
    reason: reason !== undefined && REASON.test(reason) ? reason : 'Reported',
    ...(message !== undefined && { message }),
  }
}

/** Returns the smallest number above 0, or 0. */
export function soonest(...seconds: number[]): number {
  const some = seconds.filter((one) => one > 0)
  return some.length === 0 ? 0 : Math.min(...some)
}

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
