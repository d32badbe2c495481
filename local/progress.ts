import { barOf, roughly } from './time-left.ts'

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
    const clear = drawn > 0 ? `\x1b[${drawn}A\x1b[J` : ''
    const width = (output.columns ?? 80) - 1
    const block = [...running.values()].map((text) => `${text().slice(0, width)}\n`).join('')
    drawn = running.size
    output.write(clear + above + block)
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
