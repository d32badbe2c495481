import { harmless, oneLine } from '#host/exit'
import { called, demandReconciler, detail, type QueueView, type Row } from '#inspect/keys'
import { pause } from '#primitives'
import { firstRows, type LsOptions, NOTHING } from './ls.ts'
import { rowTable } from './rows.ts'

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
      const gone = { reconciler, ...(namespace !== undefined && { namespace }), name, lane, attempt: 0 }
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
