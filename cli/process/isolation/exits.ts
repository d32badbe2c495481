import { AsyncLocalStorage } from 'node:async_hooks'
import { url as debuggerUrl } from 'node:inspector'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { type FunctionInput, firstOwnPlace, type Invoke, type RunLog } from '#contracts'
import { BLOCKED_AT } from '#reconcile'
import { EXIT } from '../exit.ts'
import { ENDING, type StalledFrame, TURNS, type WatchdogData } from './stall.ts'

const MAX_NAMES = 20

/**
 * Reports functions that call process.exit(), which ends all runs of the process. The exit code becomes
 * EXIT.byFunction, so that a supervisor restarts the process, and a log line names the function. A call outside of a
 * function's asynchronous context (such as in a listener of its module) is detected by the exit code 0: Fairlead's own
 * exits have other codes, and have logged their reason.
 */
export function reportExits(calls: CallTracker, log: RunLog): Disposable {
  const exiting = (code: number) => {
    const { current } = calls
    if (current === undefined && code !== EXIT.ok) return
    const by = current && { reconciler: current.reconciler, object: current.object, cluster: current.cluster }
    const names = Array.from(calls.underWay, ({ reconciler, object }) => `${reconciler} ${object}`)
    log.error(
      { ...by, code, calls: names.length, underWay: names.slice(0, MAX_NAMES) },
      'a function has ended the process, all keys of the process are lost: let it throw an error instead',
    )
    // Node.js reads the code of process.exit() only after its listeners.
    process.exitCode = EXIT.byFunction
  }
  process.on('exit', exiting)
  return { [Symbol.dispose]: () => void process.off('exit', exiting) }
}

/**
 * Makes an unhandled error (a rejected promise without a handler, a throw in a timer) end only the run that caused it.
 * An error outside of all runs is Fairlead's own and goes to `fatal`.
 */
export function catchUnhandledErrors(calls: CallTracker, log: RunLog, fatal: (error: unknown) => void): Disposable {
  const caught = (error: unknown) => {
    const call = calls.current
    if (call === undefined) return fatal(error)
    if (!call.ended) return call.fail(error)
    const { reconciler, object, cluster } = call
    log.error({ err: error, reconciler, object, cluster }, 'error left behind by a run of a function that had ended')
  }
  const events = ['unhandledRejection', 'uncaughtException'] as const
  for (const event of events) process.on(event, caught)
  return {
    [Symbol.dispose]() {
      for (const event of events) process.off(event, caught)
    },
  }
}

interface CallOf {
  reconciler: string
  /** Undefined: the process has only one cluster. */
  cluster?: string | undefined
}

/** One call of a function. Everything that the call starts can be traced to it. */
interface TrackedCall extends CallOf {
  object: string
  /** Aborts the signal of the call and makes the call fail with this error. Has no effect after the call has ended. */
  fail: (error: unknown) => void
  ended: boolean
}

/**
 * Knows which call the running code belongs to: in the call itself, after each await, and in timers and promises that
 * it left behind.
 */
export class CallTracker {
  readonly #calls = new AsyncLocalStorage<TrackedCall | undefined>()
  readonly #underWay = new Set<TrackedCall>()

  get current(): Readonly<TrackedCall> | undefined {
    return this.#calls.getStore()
  }

  /** Calls that have not ended. */
  get underWay(): Iterable<Readonly<TrackedCall>> {
    return this.#underWay
  }

  /** Runs `act` outside of the call, so that its consequences are not attributed to it. */
  outside(act: () => void): void {
    this.#calls.run(undefined, act)
  }

  around(of: CallOf, invoke: Invoke): Invoke {
    return async (input, context) => {
      const stray = new AbortController()
      const fail = (error: unknown) => stray.abort(error)
      const call: TrackedCall = { ...of, object: nameOf(input), fail, ended: false }
      const signal = AbortSignal.any([context.signal, stray.signal])
      this.#underWay.add(call)
      const outcome = this.#calls.run(call, async () => invoke(input, { ...context, signal }))
      await outcome.catch(() => undefined)
      call.ended = true
      this.#underWay.delete(call)
      stray.signal.throwIfAborted()
      return outcome
    }
  }
}

export function nameOf({ object }: FunctionInput): string {
  const { namespace, name = '' } = object?.metadata ?? {}
  return namespace === undefined ? name : `${namespace}/${name}`
}

/** A call that has blocked the process, which ends now. */
export interface BlockedCall extends CallOf {
  /** `namespace/name` or `name` */
  object: string
  /** What to tell users, with the place in the code. */
  message: string
}

const LOOKS = 10
const EVENT = 'fairlead:stalled'
/** The time that `blocked` has before the process ends. */
const TELL_MS = 500

/**
 * Ends the process when a function blocks its event loop: the loop cannot be interrupted from within, and all keys of
 * the process would lose their leases. A second thread detects the block, and its debugger logs the place. After the
 * restart, the key backs off as after a run that never ended. Inactive with a debugger attached, which blocks the event
 * loop too.
 */
export function exitWhenBlocked(
  calls: CallTracker,
  limitMs: number,
  log: RunLog,
  blocked: (call: BlockedCall) => Promise<void> = async () => undefined,
): Disposable {
  if (debuggerUrl() !== undefined) return { [Symbol.dispose]() {} }
  const shared = new Int32Array(new SharedArrayBuffer(8))
  const watch: WatchdogData = { shared, limitMs, looks: LOOKS, event: EVENT }
  const turning = setInterval(() => Atomics.add(shared, TURNS, 1), limitMs / LOOKS).unref()
  const thread = new Worker(new URL('./event-loop-watchdog-thread.ts', import.meta.url), { workerData: watch })
  thread.unref()
  const stalled = (frames: StalledFrame[]) => {
    const seconds = limitMs / 1000
    const stack = frames.map(({ text }) => text)
    if (calls.current === undefined) return log.warn({ seconds, stack }, 'the event loop is blocked, by no function')
    const { reconciler, object, cluster } = calls.current
    log.error(
      { reconciler, object, cluster, seconds, stack },
      'a function has blocked the process for longer than the lease, all keys of the process are lost: exiting',
    )
    Atomics.store(shared, ENDING, 1)
    // The exit code for a process that ends by itself before the exit below.
    process.once('exit', () => (process.exitCode = EXIT.byFunction))
    const place = firstOwnPlace(frames.map((frame) => frame.place))
    const where = place === undefined ? '' : `${BLOCKED_AT}${place}: `
    const message = `${where}the function has blocked its process for longer than ${seconds} s`
    const tell = () =>
      Promise.race([blocked({ reconciler, object, cluster, message }), sleep(TELL_MS)]).catch(() => undefined)
    calls.outside(() => setTimeout(() => void tell().then(() => process.exit(EXIT.byFunction)), 0))
  }
  process.on(EVENT, stalled)
  return {
    [Symbol.dispose]() {
      clearInterval(turning)
      process.off(EVENT, stalled)
      void thread.terminate()
    },
  }
}
