import type { FunctionInput, Invoke, RunContext } from '#contracts'
import { KeyedSerial } from '#primitives'
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
  readonly #turns = new KeyedSerial()
  readonly #underWay = new Set<FunctionCall>()
  readonly #ignored: (call: IgnoredSignal) => void

  constructor(ignored: (call: IgnoredSignal) => void = () => undefined) {
    this.#ignored = ignored
  }

  get underWay(): FunctionCall[] {
    return [...this.#underWay]
  }

  /** Settles when the function has settled. Rejects with the reason of its signal if that was aborted. */
  within(
    timeoutSeconds: number,
    of: FunctionCall,
    invoke: Invoke,
    input: FunctionInput,
    context: RunContext,
  ): Promise<unknown> {
    // Only a run that lost its lease leaves a call to wait for.
    const call = () => this.#call(timeoutSeconds, of, invoke, input, context)
    return this.#turns.run(`${of.reconciler} ${of.key}`, call, context.signal)
  }

  async #call(
    timeoutSeconds: number,
    of: FunctionCall,
    invoke: Invoke,
    input: FunctionInput,
    { signal, ...context }: RunContext,
  ): Promise<unknown> {
    signal.throwIfAborted()
    // AbortSignal.any() would cost more than the rest of this method.
    const call = new AbortController()
    const giveUp = () => call.abort(signal.reason)
    const timeOut = () => call.abort(new RunTimeoutError(`the function did not finish within ${timeoutSeconds} s`))
    let timer = setTimeout(timeOut, timeoutSeconds * 1000)
    const untimed: RunContext['untimed'] = async (wait) => {
      clearTimeout(timer)
      try {
        return await wait
      } finally {
        timer = setTimeout(timeOut, timeoutSeconds * 1000)
      }
    }
    signal.addEventListener('abort', giveUp, { once: true })
    this.#underWay.add(of)
    const unwatch = this.#watch(call.signal, of, IGNORED_AFTER_TIMEOUTS * timeoutSeconds)
    try {
      const outcome = await invoke(input, { signal: call.signal, ...context, untimed })
      call.signal.throwIfAborted()
      return outcome
    } catch (error) {
      call.signal.throwIfAborted()
      throw error
    } finally {
      this.#underWay.delete(of)
      clearTimeout(timer)
      signal.removeEventListener('abort', giveUp)
      unwatch()
    }
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
