import type { FunctionInput, Invoke, RunContext } from '#contracts'
import { unlessAborted } from '#primitives'
import { RunTimeoutError } from '#reconcile'

export interface FunctionCall {
  reconciler: string
  key: string
}

/** A call that continues although its signal was aborted this many seconds ago. */
export interface IgnoredSignal extends FunctionCall {
  seconds: number
}

/** The number of time-outs after its signal for which a call may continue before it counts as ignoring the signal. */
const IGNORED_AFTER_TIMEOUTS = 5

/**
 * The calls of functions in this process. No two calls of one key are active at once: a call that ignores its signal is
 * waited for, and its run keeps the key meanwhile. An endless loop without an await stops the whole process.
 */
export class FunctionCalls {
  readonly #underWay = new Map<string, { of: FunctionCall; ended: Promise<unknown> }>()
  readonly #ignored: (call: IgnoredSignal) => void

  constructor(ignored: (call: IgnoredSignal) => void = () => undefined) {
    this.#ignored = ignored
  }

  get underWay(): FunctionCall[] {
    return Array.from(this.#underWay.values(), ({ of }) => of)
  }

  /** Settles when the function has settled. Rejects with the reason of its signal if that was aborted. */
  async within(
    timeoutSeconds: number,
    of: FunctionCall,
    invoke: Invoke,
    input: FunctionInput,
    { signal, ...context }: RunContext,
  ): Promise<unknown> {
    await this.#endOfThatBefore(of, signal)
    // AbortSignal.any() would cost more than the rest of this method.
    const call = new AbortController()
    const giveUp = () => call.abort(signal.reason)
    const timer = setTimeout(
      () => call.abort(new RunTimeoutError(`the function did not finish within ${timeoutSeconds} s`)),
      timeoutSeconds * 1000,
    )
    signal.addEventListener('abort', giveUp, { once: true })
    const called = (async () => invoke(input, { signal: call.signal, ...context }))()
    const ended = this.#note(of, called)
    const unwatch = this.#watch(call.signal, of, IGNORED_AFTER_TIMEOUTS * timeoutSeconds)
    try {
      await ended
      call.signal.throwIfAborted()
      return await called
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', giveUp)
      unwatch()
    }
  }

  /** Waits for an earlier call of the key. Only a run that lost its lease leaves one. */
  async #endOfThatBefore(of: FunctionCall, signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted()
      const before = this.#underWay.get(nameOf(of))
      if (before === undefined) return
      await unlessAborted(before.ended, signal)
    }
  }

  #note(of: FunctionCall, called: Promise<unknown>): Promise<unknown> {
    const forget = () => this.#underWay.delete(nameOf(of))
    const ended = called.then(forget, forget)
    this.#underWay.set(nameOf(of), { of, ended })
    return ended
  }

  #watch(signal: AbortSignal, of: FunctionCall, seconds: number): () => void {
    let timer: NodeJS.Timeout | undefined
    const begin = () => {
      timer = setTimeout(() => this.#ignored({ ...of, seconds }), seconds * 1000).unref()
    }
    signal.addEventListener('abort', begin, { once: true })
    return () => {
      signal.removeEventListener('abort', begin)
      clearTimeout(timer)
    }
  }
}

const nameOf = ({ reconciler, key }: FunctionCall): string => `${reconciler} ${key}`
