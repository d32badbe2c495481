/** Receives the progress of long work. A command chooses the form: live lines on a terminal, plain lines in a pipe. */
export interface Progress {
  line(text: string): void
  /** Starts a piece of work. With `expectedSeconds`, the time left is printed. */
  task(label: string, expectedSeconds?: number): Task
}

export interface Task {
  /** The finished share, 0 to 1. */
  reached(share: number): void
  done(note?: string): void
  failed(note?: string): void
}

interface Output {
  write(text: string): unknown
  isTTY?: boolean
  columns?: number
}

export const silentProgress: Progress = { line() {}, task: () => ({ reached() {}, done() {}, failed() {} }) }

export function progressOn(output: Output): Progress {
  return output.isTTY ? liveProgress(output) : plainProgress(output)
}

/** Prints plain lines, and another line every `everySeconds` for a task that lasts. */
export function plainProgress(output: Output, everySeconds = 15): Progress {
  const line = (text: string): void => void output.write(`${text}\n`)
  return {
    line,
    task(label, expectedSeconds) {
      const watch = watchOf(label, expectedSeconds)
      line(`${label} …${expectedSeconds ? ` (about ${roughly(expectedSeconds)})` : ''}`)
      const timer = setInterval(() => line(watch.now()), everySeconds * 1000)
      timer.unref()
      const end = (mark: string, note?: string): void => {
        clearInterval(timer)
        line(watch.end(mark, note))
      }
      return { reached: watch.reached, done: (note) => end('✓', note), failed: (note) => end('✗', note) }
    },
  }
}

/** Prints running tasks as a block at the bottom, redrawn twice a second; finished tasks scroll away above it. */
function liveProgress(output: Output): Progress {
  const running = new Map<symbol, () => string>()
  let drawn = 0
  let timer: NodeJS.Timeout | undefined

  const redraw = (above = ''): void => {
    const up = drawn > 0 ? `\x1b[${drawn}A` : ''
    const width = (output.columns ?? 80) - 1
    const block = [...running.values()].map((text) => `${text().slice(0, width)}\n`).join('')
    drawn = running.size
    // Each line is cleared behind its text: a line that is cleared first would flicker.
    output.write(`${up}${(above + block).replaceAll('\n', '\x1b[K\n')}\x1b[J`)
  }
  const line = (text: string): void => redraw(`${text}\n`)

  return {
    line,
    task(label, expectedSeconds) {
      const id = Symbol(label)
      const watch = watchOf(label, expectedSeconds)
      running.set(id, () => `  ${watch.now()}`)
      timer ??= setInterval(redraw, 500)
      timer.unref()
      redraw()
      const end = (mark: string, note?: string): void => {
        running.delete(id)
        if (running.size === 0) {
          clearInterval(timer)
          timer = undefined
        }
        line(watch.end(mark, note))
      }
      return {
        reached: watch.reached,
        done: (note) => end('\x1b[32m✓\x1b[0m', note),
        failed: (note) => end('\x1b[31m✗\x1b[0m', note),
      }
    },
  }
}

/** Runs `work` as a task, which ends or fails with it. */
export async function withTask<T>(progress: Progress, label: string, work: () => Promise<T>): Promise<T> {
  const task = progress.task(label)
  try {
    const result = await work()
    task.done()
    return result
  } catch (error) {
    task.failed()
    throw error
  }
}

/** Measures a task from now on. */
function watchOf(label: string, expectedSeconds: number | undefined) {
  const started = Date.now()
  let share = 0
  return {
    reached: (reached: number): void => void (share = reached),
    now: (): string => {
      const work = { elapsed: (Date.now() - started) / 1000, expected: expectedSeconds ?? 0, share }
      return `${label}: ${expectedSeconds === undefined ? '' : `${barOf(work)}, `}${seconds(started)} s`
    },
    end: (mark: string, note?: string): string => `${mark} ${label}, ${seconds(started)} s${note ? `: ${note}` : ''}`,
  }
}

function seconds(since: number): string {
  const elapsed = (Date.now() - since) / 1000
  return elapsed < 10 ? elapsed.toFixed(1) : elapsed.toFixed(0)
}

/** The progress of a long piece of work. */
export interface Work {
  /** Seconds since it began. */
  elapsed: number
  /** The total seconds on the machine of the measurement. */
  expected: number
  /** The finished share of the measured time, 0 to 1. */
  share: number
}

/** From this share on, only the speed of this machine counts for the estimate. */
const PACE_IS_KNOWN = 0.2

/** Returns the remaining seconds. The measured total counts less as the work proceeds. */
export function secondsLeft({ elapsed, expected, share }: Work): number {
  const rest = 1 - share
  const known = Math.min(1, share / PACE_IS_KNOWN)
  const byPace = share > 0 ? (elapsed / share) * rest : 0
  return known * byPace + (1 - known) * expected * rest
}

/** Formats seconds as `40 s` or `2 min 10 s`. Estimates over a minute are rounded to ten seconds. */
export function roughly(seconds: number): string {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`
  const tens = Math.round(seconds / 10) * 10
  const [minutes, rest] = [Math.floor(tens / 60), tens % 60]
  return rest === 0 ? `${minutes} min` : `${minutes} min ${rest} s`
}

const CELLS = 20

/** `▰▰▰▰▱▱▱▱ 42 %, about 2 min 10 s left`. */
export function barOf(work: Work): string {
  const full = Math.floor(work.share * CELLS)
  const left = work.share >= 1 ? '' : `, about ${roughly(secondsLeft(work))} left`
  return `${'▰'.repeat(full)}${'▱'.repeat(CELLS - full)} ${Math.floor(work.share * 100)} %${left}`
}
