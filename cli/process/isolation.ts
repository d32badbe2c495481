import { type ChildProcess, fork } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { ConflictError, type Invoke, notePlace, RetryAfterError, type RunLog, TerminalError } from '#contracts'
import { BLOCKED_AT, ENDED_PROCESS, RunTimeoutError } from '#reconcile'
import { type Reconciler, toInvoke } from '#sdk'
import {
  type BlockedCall,
  CallTracker,
  catchUnhandledErrors,
  exitWhenBlocked,
  nameOf,
  reportExits,
} from './isolation/exits.ts'
import {
  type AskedPlace,
  COMES_TO_REST_MS,
  type FromFunction,
  type Isolated,
  type Thrown,
} from './isolation/isolation-messages.ts'
import { Behaviour, type Ending, Places } from './isolation/places.ts'

export interface GuardOptions {
  /** The modules of the functions, which threads load again. */
  files: readonly string[]
  leaseMs: number
  log: RunLog
  /** Called with an error that does not come from a function. */
  fatal: (error: unknown) => void
  /** Called before the end of the process, which waits half a second at most. */
  blocked?: (call: BlockedCall) => Promise<void>
}

export interface Guard extends Disposable {
  /** `cluster`: the cluster whose objects the function is called for. Left out: the process has only one. */
  invoke: (reconciler: Reconciler, cluster?: string) => Invoke
}

/** Restricts failures of functions to the runs that cause them, until disposed. */
export function guardFunctions({ files, leaseMs, log, fatal, blocked }: GuardOptions): Guard {
  const calls = new CallTracker()
  const isolated = isolation(files)
  const resources = new DisposableStack()
  resources.use(catchUnhandledErrors(calls, log, fatal))
  resources.use(reportExits(calls, log))
  resources.use(exitWhenBlocked(calls, leaseMs, log, blocked))
  return {
    invoke(reconciler, cluster) {
      const { name } = reconciler
      return calls.around({ reconciler: name, cluster }, isolated(name, toInvoke(reconciler)))
    },
    [Symbol.dispose]: () => resources.dispose(),
  }
}

/** The highest heap limit of an isolated process, in MiB. */
const HEAP_MB = 512
/** The share of the memory limit that this process and isolated processes have together, for the heap of one of them. */
const HEAP_SHARE = 1 / 8
/** The time for which a process is kept for the next suspected call. Loading the functions takes 0.2 s of CPU time. */
const KEPT_MS = 10_000
/** The time that the process of a call has to tell where the call blocks it. Native code, such as execSync, cannot be stopped. */
const TELLS_PLACE_MS = 4000

/**
 * Returns the functions with each suspected call isolated in a process: an endless loop, a full heap or process.exit()
 * ends only that process. A process that has answered and has nothing pending is reused. If a reused process ends during
 * a call, either call may be the cause, so the call is repeated in a process of its own.
 *
 * `Places` decides which calls are isolated, and which wait.
 */
export function isolation(
  files: readonly string[],
  heapMb = heapWithin(process.constrainedMemory()),
): (reconciler: string, here: Invoke) => Invoke {
  /** At most one process: several would only be needed after something else has ended many runs. */
  let idle: ConfinedProcess | undefined
  const places = new Places()

  const keep = (used: ConfinedProcess): void => {
    if (idle !== undefined || !used.isReusable) return void used.end()
    idle = used
    used.rest(KEPT_MS)
  }

  const callApart = async (reconciler: string, ...[input, context]: Parameters<Invoke>): Promise<CameBack> => {
    // A call that changes something is not repeated after the process of another call has ended.
    const used = idle?.isReusable && input.ask !== 'perform' ? idle : undefined
    if (used !== undefined || !idle?.isReusable) idle = undefined
    const confined = used ?? new ConfinedProcess(files, heapMb)
    try {
      const came = await confined.call(reconciler, input, context)
      await confined.settles()
      if ('error' in came) await confined.end()
      else keep(confined)
      return came
    } catch (error) {
      // The key may run again as soon as this rejects.
      await confined.end()
      if (used === undefined || !(error instanceof ProcessEndedError)) throw error
      return callApart(reconciler, input, context)
    }
  }

  return (reconciler, here) => {
    const of = new Behaviour()
    const callHere: Invoke = async (input, context) => {
      try {
        return await here(input, context)
      } finally {
        if (!context.signal.aborted) places.cameBack(of)
      }
    }
    return async (input, context) => {
      const object = nameOf(input)
      const suspect = context.suspect === true || of.hasLost(object)
      const place = places.take(of, object, suspect) ?? (await places.wait(of, object, { ...context, suspect }))
      if (place === 'here') return of.works ? here(input, context) : callHere(input, context)
      // Such as where there is no process for it.
      let ending: Ending = 'unknown'
      try {
        const came = await callApart(reconciler, input, context)
        ending = 'back'
        if ('error' in came) throw came.error
        return came.answer
      } catch (error) {
        if (error instanceof ProcessEndedError || error instanceof RunTimeoutError) ending = 'lost'
        throw error
      } finally {
        places.free(of, object, ending)
      }
    }
  }
}

/** Returns the heap limit in MiB. `bytes` is the memory limit; 0, or more than the machine has, stands for no limit. */
export function heapWithin(bytes: number): number {
  const share = Math.floor((bytes * HEAP_SHARE) / 2 ** 20)
  return share > 0 ? Math.min(HEAP_MB, share) : HEAP_MB
}

/** One of the calls has ended the process. */
class ProcessEndedError extends Error {}

/** What the function has returned or thrown. */
type CameBack = { answer: unknown } | { error: Error }

interface Pending {
  id: number
  resolve: (came: CameBack) => void
  reject: (error: Error) => void
  log: Parameters<Invoke>[1]['log']
}

/** A process that calls functions one after the other. */
class ConfinedProcess {
  readonly #files: readonly string[]
  readonly #child: ChildProcess
  readonly #gone: Promise<void>
  #calls = 0
  #pending: Pending | undefined
  #end: Error | undefined
  #leftBehind = false
  /** It makes no other call: it has received values that only one function may have, or its thread was stopped. */
  #isLast = false
  /** Called with the place of the code that blocks the thread. */
  #placed: ((place: string | undefined) => void) | undefined
  /** Called when the last call has no pending timers or connections. */
  #rested: (() => void) | undefined
  #rest: NodeJS.Timeout | undefined

  constructor(files: readonly string[], heapMb: number) {
    this.#files = files
    this.#child = fork(new URL('./isolation/isolation-process.ts', import.meta.url), {
      serialization: 'advanced',
      execArgv: [`--max-old-space-size=${heapMb}`],
      stdio: ['ignore', 2, 2, 'ipc'],
    })
    this.#child.on('message', (message: FromFunction) => this.#hear(message))
    this.#gone = new Promise((resolve) => {
      this.#child.once('error', (error) => resolve(this.#ended(error)))
      this.#child.once('exit', (code, by) =>
        resolve(this.#ended(new ProcessEndedError(`${ENDED_PROCESS}${by ?? `exit code ${code}`}`))),
      )
    })
  }

  /**
   * Resolves when the last call has no pending timers or connections, when the time for that is over, or when the
   * process has ended.
   */
  async settles(): Promise<void> {
    if (!this.#leftBehind) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#rested = resolve
    const timer = setTimeout(resolve, COMES_TO_REST_MS)
    await Promise.race([promise, this.#gone])
    clearTimeout(timer)
  }

  /**
   * Whether the process runs, its last call has no pending timers or connections, and nothing of it may reach another
   * call.
   */
  get isReusable(): boolean {
    return this.#end === undefined && !this.#leftBehind && !this.#isLast
  }

  /**
   * Resolves when the function has come back. Rejects if it has not: with a ProcessEndedError, or the reason why there is no
   * process or no time. After an abort the function may still be running in the process.
   */
  async call(
    reconciler: string,
    ...[input, { signal, log, config, with: given }]: Parameters<Invoke>
  ): Promise<CameBack> {
    signal.throwIfAborted()
    this.#wake()
    const { promise, resolve, reject } = Promise.withResolvers<CameBack>()
    const id = ++this.#calls
    this.#pending = { id, resolve, reject, log }
    if (this.#end) reject(this.#end)
    const abort = () => void this.#findPlace(signal.reason as Error).then(() => reject(signal.reason as Error))
    signal.addEventListener('abort', abort, { once: true })
    // A failed send needs no handler here: the end of the process is reported separately.
    this.#isLast ||= config !== undefined
    const call: Isolated = { id, files: this.#files, reconciler, input, config, with: given }
    this.#child.send(call, () => undefined)
    try {
      return await promise
    } finally {
      this.#pending = undefined
      signal.removeEventListener('abort', abort)
    }
  }

  /** Notes in the error of a call without time left where its code blocks. Otherwise the function waits for something. */
  async #findPlace(reason: Error): Promise<void> {
    if (!(reason instanceof RunTimeoutError)) return
    this.#isLast = true
    const { promise, resolve } = Promise.withResolvers<string | undefined>()
    this.#placed = resolve
    const where: AskedPlace = { kind: 'where' }
    this.#child.send(where, () => undefined)
    const place = await Promise.race([promise, this.#gone, sleep(TELLS_PLACE_MS, undefined, { ref: false })])
    if (place !== undefined) notePlace(reason, `${BLOCKED_AT}${place}`)
  }

  /** Keeps the process for the next call, for this many milliseconds. It does not keep its parent alive. */
  rest(ms: number): void {
    this.#child.unref()
    this.#child.channel?.unref()
    this.#rest = setTimeout(() => void this.end(), ms).unref()
  }

  /** Resolves when the process is gone. */
  end(): Promise<void> {
    clearTimeout(this.#rest)
    this.#child.kill('SIGKILL')
    return this.#gone
  }

  #wake(): void {
    clearTimeout(this.#rest)
    this.#child.ref()
    this.#child.channel?.ref()
  }

  #hear(message: FromFunction): void {
    if (message.kind === 'stray')
      return this.#ended(new ProcessEndedError(message.error.message, { cause: message.error }))
    if (message.kind === 'rest') return this.#rests(message.id)
    if (message.kind === 'blocked') return this.#placed?.(message.place)
    const pending = this.#pending
    if (pending?.id !== message.id) return
    if (message.kind === 'log') return pending.log[message.level](message.fields, message.message)
    if (message.kind === 'error') return pending.resolve({ error: revive(message.error) })
    this.#leftBehind = message.leftBehind
    pending.resolve({ answer: message.answer })
  }

  #rests(id: number): void {
    if (id !== this.#calls) return
    this.#leftBehind = false
    this.#rested?.()
  }

  /** Keeps the first error only. */
  #ended(error: Error): void {
    this.#end ??= error
    this.#pending?.reject(this.#end)
  }
}

function revive({ name, message, stack, reason, afterSeconds = 0, place }: Thrown): Error {
  const options = reason === undefined ? {} : { reason }
  const error =
    name === 'TerminalError'
      ? new TerminalError(message, options)
      : name === 'RetryAfterError'
        ? new RetryAfterError(message, { ...options, afterSeconds })
        : name === 'ConflictError'
          ? new ConflictError(message)
          : new Error(message)
  if (stack !== undefined) error.stack = stack
  if (place !== undefined) notePlace(error, place)
  return error
}
