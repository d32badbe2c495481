import { createInterface } from 'node:readline/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import type { EventsView } from '#events'
import {
  type Act,
  type ActResult,
  actOn,
  adviceOn,
  called,
  causesText,
  demandReconciler,
  detail,
  elsewhere,
  type Filter,
  isDone,
  type KeyName,
  keyFor,
  keyNameOf,
  MEANING,
  objectsNamed,
  orphansIn,
  placeInNamespace,
  type QueuedNow,
  type QueueView,
  queueNow,
  type Row,
  type State,
  selectRows,
  toRow,
  withExistingStreams,
  withOrphan,
} from '#inspect/keys'
import { mapAtMost, pause } from '#primitives'
import { duration, EXIT, harmless, oneLine, table, UsageError, untilStopped } from '#process/exit'
import type { WorkQueue } from '#queue'
import type { CommandContext, Print } from '../options.ts'

export type WatchOptions = LsOptions & { watch?: boolean }
/** `yes` is undefined for actions without a confirmation. */
export type GivenActOptions = ActOptions & { yes?: boolean }

const now = () => new Date()

export const ls = ({ watch, ...options }: WatchOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue, view: events }) => {
    if (watch) await watchQueue({ queue, events }, options, screenOf(process.stdout), now, untilStopped().signal)
    else context.print(await listQueue({ queue, events }, options, now))
  })

export const show = (options: ShowOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue, view: events }) =>
    context.print(await showKey({ queue, events }, options, now())),
  )

export const actOnSelected = ({ yes = true, ...options }: GivenActOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue }) => {
    const confirm = yes ? async () => undefined : askOnTerminal
    const tools = { print: context.print, confirm, signal: untilStopped().signal }
    if (!(await actOnKeys(queue, options, tools))) context.setExitCode(EXIT.failed)
  })

export const run = (options: RunNowOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue, view: events }) => {
    if (!(await runNow(options, { queue, events, print: context.print }))) context.setExitCode(EXIT.failed)
  })

export const drain = (options: DrainOptions, context: CommandContext): Promise<void> =>
  withExistingStreams(context, async ({ queue }) => {
    const report = (text: string) => console.error(text)
    context.print(await untilDrained(queue, options, untilStopped().signal, report))
  })

function screenOf(stream: NodeJS.WriteStream): Screen {
  const size = () => ({ rows: stream.rows, columns: stream.columns })
  return {
    write: (text) => void stream.write(text),
    note: (text) => console.error(text),
    size: stream.isTTY ? size : undefined,
  }
}

async function askOnTerminal(question: string): Promise<void> {
  if (!process.stdin.isTTY) throw new UsageError(`${question} Input is not a terminal: add --yes`)
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    const answer = await terminal.question(`${question} [y/N] `)
    if (!/^y(es)?$/i.test(answer.trim())) throw new Error('nothing was done')
  } finally {
    terminal.close()
  }
}

export interface LsOptions extends Filter {
  output: Format
  limit: number
}

/** Prints one line per key that is queued, running, waiting or parked; idle keys are not stored. */
export async function listQueue(view: QueueView, options: LsOptions, now: () => Date): Promise<string> {
  const { reconciler, output, limit } = options
  if (reconciler !== undefined) await demandReconciler(view.queue, reconciler)
  const { rows, more } = await firstRows(view, options, limit)
  if (output === 'json') return JSON.stringify(rows, null, 2)
  if (rows.length === 0) return NOTHING
  return rowTable(rows, now(), output) + (more ? `\n… and more: --limit is ${limit}` : '')
}

const NOTHING = 'Nothing is queued, running, waiting or parked.'

async function firstRows(
  { queue, events }: QueueView,
  filter: Filter,
  limit: number,
): Promise<{ rows: Row[]; more: boolean }> {
  const orphans = orphansIn(events)
  const found: Row[] = []
  for await (const row of selectRows(queue, filter)) if (found.push(row) > limit) break
  const rows = await mapAtMost(AT_ONCE, found.slice(0, limit), (row) => withOrphan(row, orphans))
  return { rows, more: found.length > limit }
}

const AT_ONCE = 16

export type Format = 'table' | 'wide' | 'json'

const ERROR_CHARS = 60

export function rowTable(rows: readonly Row[], now: Date, format: Format): string {
  const wide = format === 'wide'
  const head = [
    'RECONCILER',
    'NAMESPACE',
    'NAME',
    'STATE',
    'SINCE',
    'ATTEMPT',
    ...(wide ? ['LANE', 'OWNER'] : []),
    'DETAIL',
  ]
  return table(
    head,
    rows.map((row) => [
      row.reconciler,
      row.namespace ?? '-',
      row.name,
      row.state,
      duration(now.getTime() - Date.parse(row.since)),
      String(row.attempt),
      ...(wide ? [row.lane, row.owner ?? '-'] : []),
      detail(row, now, wide ? Number.POSITIVE_INFINITY : ERROR_CHARS),
    ]),
  )
}

export interface ShowOptions {
  reconciler: string
  key: string
  namespace?: string
  output: 'text' | 'json'
}

/** Returns all known facts about one key. */
export async function showKey({ queue, events }: QueueView, options: ShowOptions, now: Date): Promise<string> {
  const { reconciler, output } = options
  const orphans = orphansIn(events)
  const name = keyNameOf(options.key, options.namespace)
  const isGone = await orphans.isGone(reconciler)
  const orphan = isGone ? await orphans.find(reconciler, name) : undefined
  // The queue of a deleted Reconciler is removed some minutes later.
  if (orphan === undefined) await demandReconciler(queue, reconciler)
  const entries = await queue.find(keyFor(reconciler, name))
  const rows = await Promise.all(entries.map((entry) => withOrphan(toRow(entry), orphans)))
  if (output === 'json') return JSON.stringify(rows, null, 2)
  const shown = rows.map((row) => described(row, now))
  const advice = orphan && adviceOn(reconciler, orphan)
  if (rows.length > 0) return [...shown, ...(advice === undefined ? [] : [advice])].join('\n\n')
  const hint = await elsewhere(queue, reconciler, name)
  if (hint !== '') throw new UsageError(`${called({ reconciler, ...name })} is idle${hint}`)
  if (advice !== undefined) return advice
  const there = await objectsNamed(events, reconciler, name.name)
  if (there?.every(({ metadata }) => metadata.namespace !== name.namespace))
    throw new UsageError(`${called({ reconciler, ...name })}: no such object${stillThere(there)}`)
  const ends = isGone
    ? `there is no Reconciler ${reconciler}, so nothing runs it`
    : 'it runs when it changes, or by queue run'
  return `${called({ reconciler, ...name })} is idle: ${ends}.`
}

function described(row: Row, now: Date): string {
  const ago = (time: string) => `${time} (${duration(now.getTime() - Date.parse(time))} ago)`
  const ahead = (time = '') => `${time} (in ${duration(Date.parse(time) - now.getTime())})`
  const lines: [string, string][] = [
    ['Reconciler', row.reconciler],
    ['Namespace', row.namespace ?? '-'],
    ['Name', row.name],
    ['State', row.state],
    ['Since', ago(row.since)],
    ...(row.attempt === 0 ? [] : [['Failures', `${row.attempt} in a row`] as [string, string]]),
    ['Lane', row.lane],
  ]
  if (row.state === 'queued') lines.push(['Place', `${row.position} in its lane${placeInNamespace(row)}`])
  if (row.state === 'running') {
    lines.push(['By', row.by ?? '-'], ['Owner', row.owner ?? '-'], ['Lease until', ahead(row.until)])
    lines.push(['Changed', row.dirty ? 'since the run began: it runs once more' : 'no'])
  }
  if (row.causes) lines.push([row.dirty ? 'Once more' : 'Because', causesText(row.causes)])
  if (row.state === 'waiting') lines.push(['Until', ahead(row.until)], ['Because', BECAUSE[row.reason ?? ''] ?? '-'])
  if (row.state === 'parked')
    lines.push(['Until', 'it changes, or is retried'], ['Because', BECAUSE[row.reason ?? ''] ?? '-'])
  if (row.error !== undefined) lines.push(['Last error', oneLine(row.error)])
  const width = Math.max(...lines.map(([title]) => title.length)) + 1
  return lines.map(([title, value]) => `${`${title}:`.padEnd(width)}  ${value}`).join('\n')
}

const BECAUSE: Record<string, string> = {
  Requeue: 'a timer is set',
  Error: 'its last run failed',
  Terminal: 'its last run failed for good',
  Withdrawn: 'it was parked by hand',
}

/** The output: a terminal is redrawn in place, other outputs get one line per change. */
export interface Screen {
  write: (text: string) => void
  /** Writes a message that is not a result. */
  note: (text: string) => void
  /** The size of the terminal; undefined for other outputs. */
  size: (() => { rows: number; columns: number }) | undefined
}

const EVERY_MS = 1000

/** Shows the queue at intervals until the signal. Continues after an interruption of NATS. */
export async function watchQueue(
  view: QueueView,
  options: LsOptions,
  screen: Screen,
  now: () => Date,
  signal: AbortSignal,
): Promise<void> {
  const { reconciler, limit } = options
  if (reconciler !== undefined) await demandReconciler(view.queue, reconciler)
  const show = screen.size === undefined ? lineByLine(screen, options, now) : inPlace(screen, screen.size, options, now)
  while (!signal.aborted) {
    const looked = await firstRows(view, options, limit).catch((error: Error) => error)
    if (signal.aborted) break
    show(looked)
    await pause(EVERY_MS, signal)
  }
}

type Looked = Awaited<ReturnType<typeof firstRows>> | Error

/** Prints the changes since the last look. A key that has disappeared is idle. */
function lineByLine({ write, note }: Screen, { output }: LsOptions, now: () => Date): (looked: Looked) => void {
  let before = new Map<string, Row>()
  let failing = false
  const say = (row: Omit<Row, 'state'> & { state: Row['state'] | 'idle' }, what: string) => {
    const time = now().toISOString()
    const line =
      output === 'json' ? JSON.stringify({ time, ...row }) : `${time}  ${oneLine(called(row))}  ${row.state}  ${what}`
    write(`${harmless(line)}\n`)
  }
  return (looked) => {
    if (looked instanceof Error) {
      if (!failing) note(`NATS does not answer: ${looked.message}`)
      failing = true
      return
    }
    failing = false
    const after = new Map(looked.rows.map((row) => [`${called(row)} ${row.state} ${row.lane}`, row]))
    const present = new Set(looked.rows.map(called))
    for (const [id, row] of after)
      if (!isSame(row, before.get(id))) say(row, detail(row, now(), Number.POSITIVE_INFINITY))
    for (const { reconciler, namespace, name, lane } of before.values()) {
      const gone = { reconciler, namespace, name, lane, attempt: 0 }
      if (present.has(called(gone))) continue
      present.add(called(gone))
      say({ ...gone, state: 'idle', since: now().toISOString() }, '')
    }
    before = after
  }
}

/** Times of the server's clock have an uncertainty of some milliseconds. */
const TOLERANCE_MS = 50

/** Ignores values that change by themselves: positions in the queue, and ends of leases, which are renewed. */
function isSame(a: Row, b: Row | undefined): boolean {
  if (b === undefined) return false
  const near = (one = '', other = '') => one === other || Math.abs(Date.parse(one) - Date.parse(other)) < TOLERANCE_MS
  if (!near(a.since, b.since) || (a.state !== 'running' && !near(a.until, b.until))) return false
  const rest = (row: Row) => JSON.stringify({ ...row, since: '', until: '', position: 0, positionInNamespace: 0 })
  return rest(a) === rest(b)
}

const HOME = '\u001B[H'
const CLEAR_LINE = '\u001B[K'
const CLEAR_BELOW = '\u001B[J'

function inPlace(
  { write }: Screen,
  size: () => { rows: number; columns: number },
  { output }: LsOptions,
  now: () => Date,
): (looked: Looked) => void {
  write('\u001B[2J')
  return (looked) => {
    const { rows: height, columns } = size()
    const lines = frame(looked, output, now())
    const shown =
      lines.length > height - 1 ? [...lines.slice(0, height - 2), `… ${lines.length - height + 2} more lines`] : lines
    write(HOME + shown.map((line) => `${line.slice(0, columns)}${CLEAR_LINE}\n`).join('') + CLEAR_BELOW)
  }
}

function frame(looked: Looked, output: LsOptions['output'], now: Date): string[] {
  const time = now.toISOString().slice(11, 19)
  if (looked instanceof Error) return [`${time}Z  NATS does not answer: ${harmless(looked.message)}`]
  const { rows, more } = looked
  const count = (state: Row['state']) => `${rows.filter((row) => row.state === state).length} ${state}`
  const head = `${time}Z  ${count('queued')}, ${count('running')}, ${count('waiting')}, ${count('parked')}${more ? ', and more' : ''}`
  const body =
    rows.length === 0 ? NOTHING : output === 'json' ? JSON.stringify(rows, null, 2) : rowTable(rows, now, output)
  return [head, '', ...harmless(body).split('\n')]
}

export interface ActOptions {
  act: Act
  reconciler: string
  /** The keys as the user has given them. */
  keys: readonly string[]
  namespace?: string
  /** Selects every key in one of these states. */
  all: boolean
  states: readonly State[]
  output: 'text' | 'json'
}

export interface ActTools {
  print: Print
  /** Rejects with a message if the user does not confirm. */
  confirm: (question: string) => Promise<void>
  signal: AbortSignal
}

/** Prints the result for each key as soon as it is known. Returns true if every named key has the requested state. */
export async function actOnKeys(queue: WorkQueue, options: ActOptions, tools: ActTools): Promise<boolean> {
  const { act, reconciler, all, states, output } = options
  await demandReconciler(queue, reconciler)
  const names = await selectedKeys(queue, options)
  if (names.length === 0) tools.print(output === 'json' ? '[]' : `Nothing of ${reconciler} is ${states.join(' or ')}.`)
  if (names.length === 0) return true
  const meant = names.length === 1 ? '1 key' : `${names.length} keys`
  await tools.confirm(`Purge ${meant} of ${reconciler}? Their runs and timers are dropped until they change.`)
  const results: ActResult[] = []
  for await (const acted of actOn(queue, act, reconciler, names, tools.signal)) {
    // With `--all`, a key that has become idle in the meantime needs no action.
    if (all && acted.result === 'idle') continue
    results.push(acted)
    if (output === 'text') tools.print(await resultText(queue, act, acted))
  }
  if (output === 'json') tools.print(JSON.stringify(results, null, 2))
  return all || results.every(({ result }) => isDone(result, act))
}

async function selectedKeys(queue: WorkQueue, options: ActOptions): Promise<KeyName[]> {
  const { reconciler, keys, namespace, all, states } = options
  if (all === keys.length > 0) throw new UsageError('give either keys, as namespace/name, or --all')
  if (!all) return keys.map((key) => keyNameOf(key, namespace))
  const found = new Map<string, KeyName>()
  for await (const row of selectRows(queue, { reconciler, namespace, states }))
    found.set(called(row), { namespace: row.namespace, name: row.name })
  return [...found.values()]
}

async function resultText(queue: WorkQueue, act: Act, acted: ActResult): Promise<string> {
  const { reconciler, result, ...name } = acted
  if (result === 'idle') {
    const hint =
      (await elsewhere(queue, reconciler, name)) || (act === 'retry' ? '; queue run runs it all the same' : '')
    return `${called(acted)}: idle, nothing to ${act}${hint}`
  }
  return `${called(acted)}: ${MEANING[result]}${isDone(result, act) ? '' : ', left alone: try again when its run is over'}`
}

export interface DrainOptions {
  reconciler: string
  timeoutSeconds: number
}

const DRAIN_EVERY_MS = 200

/** Waits until no key is queued or running. Timers may remain. */
export async function untilDrained(
  queue: WorkQueue,
  { reconciler, timeoutSeconds }: DrainOptions,
  signal: AbortSignal,
  report: (text: string) => void,
): Promise<string> {
  await demandReconciler(queue, reconciler)
  const end = performance.now() + timeoutSeconds * 1000
  let empty = 0
  let reported = ''
  for (;;) {
    const { queued, running, waiting, parked } = await queue.depth(reconciler)
    empty = queued + running === 0 ? empty + 1 : 0
    // The counts are not a snapshot: a key may have changed its state between them. So two empty results are required.
    if (empty === 2) return `${reconciler}: drained; ${waiting} waiting, ${parked} parked`
    const now = `${reconciler}: ${queued} queued, ${running} running`
    if (empty === 0 && now !== reported) report(now)
    reported = now
    if (performance.now() > end) throw new Error(`not drained after ${timeoutSeconds} s: ${now}`)
    await sleep(DRAIN_EVERY_MS, undefined, { signal })
  }
}

export interface RunNowOptions {
  reconciler: string
  /** The keys as the user has given them. */
  keys: readonly string[]
  namespace?: string
  output: 'text' | 'json'
}

interface RunNowTools {
  queue: WorkQueue
  events: EventsView
  print: Print
}

/** Prints for each object whether it is queued. Returns true if all objects exist. */
async function runNow(options: RunNowOptions, { print, ...tools }: RunNowTools): Promise<boolean> {
  const { reconciler, keys, namespace, output } = options
  const names = keys.map((key) => keyNameOf(key, namespace))
  const results: Omit<QueuedNow, 'there'>[] = []
  for await (const { there, ...acted } of queueNow(tools, reconciler, names)) {
    results.push(acted)
    if (output === 'text')
      print(`${called(acted)}: ${acted.result === 'queued' ? 'queued' : `no such object${stillThere(there)}`}`)
  }
  if (output === 'json') print(JSON.stringify(results, null, 2))
  return results.every(({ result }) => result === 'queued')
}

const stillThere = (there: readonly KubeObject[]): string =>
  there.length === 0
    ? ''
    : `; there is ${there
        .slice(0, 5)
        .map(({ metadata: { namespace, name } }) => (namespace === undefined ? name : `${namespace}/${name}`))
        .join(', ')}`
