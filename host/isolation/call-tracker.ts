import { AsyncLocalStorage } from 'node:async_hooks'
import type { FunctionInput, Invoke } from '#contracts'

/** One call of a function, which all that the call has begun can be traced to. */
interface TrackedCall {
  reconciler: string
  object: string
  /** Aborts its signal, and is what the call then fails with. After the call has ended this does nothing. */
  fail: (error: unknown) => void
  ended: boolean
}

/** Knows whose code is running: in the call itself, after each of its awaits, and in timers and promises it left behind. */
export class CallTracker {
  readonly #calls = new AsyncLocalStorage<TrackedCall | undefined>()
  readonly #underWay = new Set<TrackedCall>()

  get current(): Readonly<TrackedCall> | undefined {
    return this.#calls.getStore()
  }

  /** Those that have not ended. */
  get underWay(): Iterable<Readonly<TrackedCall>> {
    return this.#underWay
  }

  /** For what a call has caused and is not its own. */
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
