import type { PerformInput, ReadInput } from '#contracts'
import { type Span, spanAfter, traceparentOf } from '#events'
import { pause, type TokenBucket } from '#primitives'
import type { Answer, Ask } from '#reconcile'
import type { RunObserver } from '../run-steps.ts'

/** The longest time for which a run keeps its slot until the rate limit allows a read. */
const LONGEST_WAIT_MS = 1000

interface ExternalCallsOptions {
  reconciler: string
  key: string
  /** The limit of this process for the reconciler. Undefined: no limit. */
  rateLimit: TokenBucket | undefined
  /** Receives each effect, which is then not performed. Undefined: effects are performed. */
  skipped: ((effect: string) => void) | undefined
  call: (input: ReadInput | PerformInput, traceparent: string | undefined) => Promise<unknown>
  /** Throws when the lease is over. */
  hold: () => void
  signal: AbortSignal
  /** Returns the span of the run. */
  span: () => Span | undefined
  observe: RunObserver
}

/** The calls of a run to the external system of its function. */
export class ExternalCalls {
  readonly #options: ExternalCallsOptions

  constructor(options: ExternalCallsOptions) {
    this.#options = options
  }

  async read({ input }: Ask & { do: 'read' }): Promise<Answer> {
    const { rateLimit, signal } = this.#options
    const turn = rateLimit?.takeWithin(LONGEST_WAIT_MS) ?? { waitMs: 0 }
    if ('returnMs' in turn) return { did: 'limit', afterMs: turn.returnMs }
    if (turn.waitMs > 0) await pause(turn.waitMs, signal)
    signal.throwIfAborted()
    return { did: 'read', external: await this.#call(input, { step: 'read' }) }
  }

  /**
   * Performs an effect without a wait. Later reads wait longer instead. If effects waited, reads could use up a low
   * limit.
   */
  async perform({ input, shown }: Ask & { do: 'perform' }): Promise<Answer> {
    const { rateLimit, skipped, hold } = this.#options
    if (skipped !== undefined) {
      skipped(shown)
      return { did: 'skip' }
    }
    rateLimit?.take()
    hold()
    return { did: 'perform', result: await this.#call(input, { step: 'performed', kind: input.effect.kind }) }
  }

  async #call(
    input: ReadInput | PerformInput,
    what: { step: 'read' } | { step: 'performed'; kind: string },
  ): Promise<unknown> {
    const { reconciler, key, span, call, observe } = this.#options
    const parent = span()
    const own = parent && spanAfter(traceparentOf(parent), parent.sampled)
    const began = performance.now()
    const ended = (result: 'success' | 'error') =>
      observe({ reconciler, key, ...own, ...what, result, ms: performance.now() - began })
    try {
      const answer = await call(input, own && traceparentOf(own))
      ended('success')
      return answer
    } catch (error) {
      ended('error')
      throw error
    }
  }
}
