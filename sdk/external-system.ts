import type { ConfigValue } from '#spec'

/**
 * A value of a function's configuration, for the calls of its external system: a key of a Secret or of a ConfigMap, or a
 * token of its service account for one audience. `name`: letters and digits, a lower-case letter first.
 *
 * @example
 * import type { ConfigDeclaration } from 'fairlead'
 * const token: ConfigDeclaration = { name: 'token', secret: { name: 'dns-provider', key: 'token' } }
 * const cloud: ConfigDeclaration = { name: 'cloud', audience: 'sts.amazonaws.com' }
 * const names = [token, cloud].map(({ name }) => name)
 * names // => ['token', 'cloud']
 */
export type ConfigDeclaration = { readonly name: ConfigValue['name'] } & (
  | { readonly secret: Readonly<NonNullable<ConfigValue['secret']>> }
  | { readonly configMap: Readonly<NonNullable<ConfigValue['configMap']>> }
  | { readonly audience: string }
)

/**
 * A system outside of Kubernetes that a function reads, and manages if it has a `perform`. Both receive the input of
 * `reconcile` and run in the same process; only they may hold clients.
 *
 * @example
 * import type { ExternalSystem } from 'fairlead'
 * type Change = { kind: 'add'; name: string }
 * const users = new Set<string>()
 * const directory: ExternalSystem<unknown, string[], Change> = {
 *   read: () => [...users].sort(),
 *   perform: ({ name }) => void users.add(name),
 *   timeoutSeconds: 10,
 * }
 * await directory.perform?.({ kind: 'add', name: 'ann' }, {})
 * directory.read({}) // => ['ann']
 */
export interface ExternalSystem<Run, State, Change> {
  /**
   * Values that `run.config(name)` returns in `read` and `perform`, and nowhere else, 32 at most. Secrets and ConfigMaps are
   * those in the namespace of the service account, or over HTTP of the pod. The calls wait while one is missing.
   *
   * @default []
   */
  config?: readonly ConfigDeclaration[]
  /**
   * Returns the current state as plain JSON of 1 MiB at most. Called once for each observation, before `reconcile`.
   * Return a value for a system that does not answer: an error that is thrown here ends the run, which is retried with
   * backoff.
   */
  read: (run: Run) => State | Promise<State>
  /**
   * Makes the change that `reconcile` returned as `effect`. The next decision receives the result. It may be called
   * again for a change that was already made, and it may be called late. Stop when `run.signal` is aborted.
   *
   * @default none: `reconcile` returns no effect
   */
  perform?: (effect: Change, run: Run) => unknown
  /**
   * The time-out of one call, in seconds.
   *
   * @default that of the reconciler
   */
  timeoutSeconds?: number
  /**
   * The calls of `read` and `perform` together, per second and dispatcher process. `burst` (default 1): calls at once
   * after a time without calls.
   *
   * @default no limit
   */
  rateLimit?: { perSecond: number; burst?: number }
}
