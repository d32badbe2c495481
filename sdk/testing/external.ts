import type { Effect, PerformInput, ReadInput } from '#contracts'
import { type Kind, type Reconciler, type RelatedKind, type Run, toInvoke } from '#sdk'
import { callContext } from './given.ts'

/**
 * A model of the external system of a function, in memory. A simulation uses it in place of `external`.
 *
 * @example
 * import type { ExternalModel } from 'fairlead/testing'
 * const model: ExternalModel<never, { users: string[] }> = {
 *   state: { users: [] },
 *   read: ({ users }) => users.toSorted(),
 *   perform: (state, { name }) => void state.users.push(String(name)),
 * }
 * const state = { users: ['ann'] }
 * model.read(state, {} as never) // => ['ann']
 */
export interface ExternalModel<For extends Kind<unknown> = Kind<unknown>, State = unknown> {
  /** The initial state: plain data, which a simulation copies. */
  state: State
  /** Returns the value that `external.read` returns for that state. */
  read(state: State, run: Run<For, Kind<unknown>, RelatedKind>): unknown
  /**
   * Changes the state as the system does. Throws the system's errors; returns the result of `external.perform`.
   *
   * @default the function returns no effect
   */
  perform?(state: State, effect: Effect, run: Run<For, Kind<unknown>, RelatedKind>): unknown
}

type Ask = (input: ReadInput | PerformInput) => Promise<unknown>

/** An external system in memory. */
export class SimulatedExternal {
  readonly #reconciler: Reconciler
  readonly #model: ExternalModel
  readonly #ask: Ask
  readonly state: unknown
  /** Effects that the system has accepted, in order. */
  readonly taken: Effect[] = []
  /** Called for each effect, which it may disturb; `perform` passes the effect to the system. */
  around: (effect: Effect, perform: () => Promise<unknown>) => Promise<unknown> = (_, perform) => perform()

  constructor(reconciler: Reconciler, model: ExternalModel, state = model.state) {
    this.#reconciler = reconciler
    this.#model = model
    this.state = structuredClone(state)
    const invoke = toInvoke(reconciler, {
      read: (run) => model.read(this.state, run),
      ...(model.perform && { perform: (effect, run) => model.perform?.(this.state, effect, run) }),
    })
    this.#ask = async (input) => invoke(input, callContext())
  }

  copy(): SimulatedExternal {
    return new SimulatedExternal(this.#reconciler, this.#model, this.state)
  }

  read(input: ReadInput): Promise<unknown> {
    return this.#ask(input)
  }

  perform(input: PerformInput): Promise<unknown> {
    return this.around(input.effect, async () => {
      const result = await this.#ask(input)
      this.taken.push(input.effect)
      return result
    })
  }
}

/** Returns undefined for a function without an external system. */
export function simulatedExternal(
  reconciler: Reconciler,
  model: ExternalModel | undefined,
): SimulatedExternal | undefined {
  const { name, external } = reconciler
  if (external === undefined && model !== undefined)
    throw new Error(`"external" is a model of a system that ${name} does not have: leave it out`)
  if (external !== undefined && model === undefined)
    throw new Error(`${name} has an external system: give a model of it in "external"`)
  return model && new SimulatedExternal(reconciler, model)
}
