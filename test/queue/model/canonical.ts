import { LANES } from '../../../streams/queue/record.ts'
import type { Config, Note, Process, Slot, State } from './state.ts'

/** The number of a text with holes, and the identities that fill them: two values are the same up to renaming if both agree. */
interface Template {
  text: number
  ids: (string | number)[]
}

/**
 * The state up to renaming: workers of the same kind are interchangeable, and sequences, owners and generations are
 * only ever compared for equality, so each is replaced by the order in which it is met. Left out is what no decision
 * depends on: attempts, suspicions, errors, times on the coarse clock, counts of writes (a new generation is new in any case).
 */
export function canonical(state: State, config: Config): string {
  const names = new Map<string | number, number>([
    [0, 0],
    [-1, -1],
  ])
  const name = (id: string | number) => {
    const known = names.get(id)
    if (known !== undefined) return known
    names.set(id, names.size)
    return names.size - 1
  }
  let key = `${Object.values(state.left).join(' ')}|${state.covered ? 1 : 0}c${state.lost}${config.maxRuns === undefined ? '' : state.runs}`
  const redeliveries = Number.isFinite(config.slow)
  for (const lane of LANES) {
    const slot = state.tokens[lane]
    const delivered = redeliveries && slot?.delivered ? 'D' : ''
    key += `|${slotText(slot, name)}${delivered}${slotText(state.acknowledged[lane], name)}`
  }
  for (const { record, due, givenUp } of state.records)
    key += `|${due ? 'due' : ''}${givenUp ? 'x' : ''}${filled(templateOf(record), name)}`
  for (const { generation, lane, cuts, cutShort, lost } of state.fires)
    key += `|f${name(generation)}${lane}${cuts}${cutShort ? 's' : ''}.${lost}`
  for (const { message, completes, progresses } of state.network)
    key += `|${completes ? 'c' : ''}${progresses ? 'p' : ''}${filled(templateOf(message), name)}`
  const known = (id: string | number | undefined) => (id === undefined ? '' : (names.get(id) ?? ''))
  if (config.progresses > 0) key += `|b${known(state.begun)}.${state.deaths}.${known(state.follows)}`
  const anonymous = (id: string | number) => names.get(id) ?? '?'
  const sorted = state.processes
    .map((process) => ({ process, text: processText(process, anonymous) }))
    .sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : 0))
  for (const { process } of sorted) key += `|${processText(process, name)}`
  return key
}

const slotText = (slot: Slot | undefined, name: (id: number) => number): string =>
  slot
    ? `${name(slot.sequence)}${slot.cuts || ''}${slot.cutShort ? 's' : ''}${slot.acking ? 'a' : ''}${slot.gone ? 'g' : ''}${slot.dead ? 'd' : ''}`
    : '-'

function processText(process: Process, name: (id: string | number) => number | string): string {
  const { open, unseen, seen } = process.passes
  const notes = `${open ? 'o' : ''}${filled(templateOf(unseen), name)}${seen.filter(isChange).length}`
  const flags = `${process.phase}${process.overdue ? 'o' : ''}${process.fresh ? 'f' : ''}${name(process.nonce)}${notes}`
  switch (process.phase) {
    case 'taking':
      return flags + filled(templateOf(process.step), name)
    case 'absorbing':
      return (
        flags +
        [process.held, process.tokens, process.step].map((part) => filled(templateOf(part), name)).join('') +
        `${process.lane}${name(process.token)}`
      )
    case 'running':
      return flags + filled(templateOf(process.held), name)
    case 'requeueing':
    case 'enqueueing':
      return flags + process.lane + (process.step ? filled(templateOf(process.step), name) : '')
    case 'renewing':
      return (
        flags + (process.progressed ? 'p' : '') + (process.begins ? 'b' : '') + filled(templateOf(process.step), name)
      )
    case 'finishing':
      return (
        flags + (process.lost === undefined ? '' : process.lost ? 'l' : 'n') + filled(templateOf(process.step), name)
      )
    case 'retrying':
    case 'withdrawing':
    case 'rearming':
      return flags + filled(templateOf(process.step), name)
  }
}

/** Tokens that a pass has absorbed have no effect on later states. */
const isChange = ({ sequence }: Note) => sequence === undefined

function filled({ text, ids }: Template, name: (id: string | number) => number | string): string {
  let key = `${text}`
  for (const id of ids) key += `.${name(id)}`
  return `${key};`
}

/** Values never change, so each is read once. */
const templates = new WeakMap<object, Template>()

function templateOf(value: object): Template {
  const known = templates.get(value)
  if (known) return known
  const template = read(value)
  templates.set(value, template)
  return template
}

const IDENTITIES = new Set(['sequence', 'generation', 'owner', 'nonce', 'cancels'])
const IRRELEVANT = new Set([
  'attempt',
  'suspect',
  'error',
  'message',
  'at',
  'since',
  'freshUntil',
  'terms',
  'writes',
  'after',
])

/** Numbers are shorter than texts, and a key is hashed as a whole. */
const texts = new Map<string, number>()

function numberOf(text: string): number {
  const known = texts.get(text) ?? texts.size
  if (known === texts.size) texts.set(text, known)
  return known
}

/** Parts are read once as well: a step consists of records that the state has, too. */
function read(value: object): Template {
  const ids: (string | number)[] = []
  let text = ''
  for (const [name, field] of Object.entries(value) as [string, object | string | number | boolean | null][]) {
    if (typeof field === 'object' && field !== null) {
      if (name === 'terms') continue
      const part = templateOf(field)
      text += `${name}#${part.text},`
      ids.push(...part.ids)
    } else if (IDENTITIES.has(name)) {
      text += `${name}?,`
      ids.push(field as string | number)
    } else if (name === 'reason') text += field === 'CutShort' ? 'cut,' : ''
    else if (!IRRELEVANT.has(name) && field !== undefined && field !== false) text += `${name}${field},`
  }
  return { text: numberOf(text), ids }
}
