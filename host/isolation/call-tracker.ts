import { AsyncLocalStorage } from 'node:async_hooks'
import type { FunctionInput, Invoke } from '#contracts'

/** One call of a function. Everything that the call starts can be traced to it. */
interface TrackedCall {
  reconciler: string
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

  around(reconciler: string, invoke: Invoke): Invoke {
    return async (input, context) => {
      const stray = new AbortController()
      const fail = (error: unknown) => stray.abort(error)
      const call: TrackedCall = { reconciler, object: nameOf(input), fail, ended: false }
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

function nameOf({ object }: FunctionInput): string {
  const { namespace, name = '' } = object?.metadata ?? {}
  return namespace === undefined ? name : `${namespace}/${name}`
}
