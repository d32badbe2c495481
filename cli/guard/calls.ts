import { AsyncLocalStorage } from 'node:async_hooks'
import type { Invoke, RunInput } from '#contracts'

/** One call of a function, which all that the call has begun can be traced to. */
interface Call {
  reconciler: string
  object: string
  /** After the call has ended this does nothing. */
  fail: (error: unknown) => void
  ended: boolean
}

/** Knows whose code is running: in the call itself, after each of its awaits, and in timers and promises it left behind. */
export class Calls {
  readonly #calls = new AsyncLocalStorage<Call | undefined>()
  readonly #underWay = new Set<Call>()

  get current(): Readonly<Call> | undefined {
    return this.#calls.getStore()
  }

  /** Those that have not ended. */
  get underWay(): Iterable<Readonly<Call>> {
    return this.#underWay
  }

  /** For what a call has caused and is not its own. */
  outside(act: () => void): void {
    this.#calls.run(undefined, act)
  }

  around(reconciler: string, invoke: Invoke): Invoke {
    return async (input, context) => {
      const { promise: stray, reject: fail } = Promise.withResolvers<never>()
      const call: Call = { reconciler, object: nameOf(input), fail, ended: false }
      this.#underWay.add(call)
      try {
        return await Promise.race([this.#calls.run(call, () => invoke(input, context)), stray])
      } finally {
        call.ended = true
        this.#underWay.delete(call)
      }
    }
  }
}

function nameOf({ object }: RunInput): string {
  const { namespace, name = '' } = object?.metadata ?? {}
  return namespace === undefined ? name : `${namespace}/${name}`
}
