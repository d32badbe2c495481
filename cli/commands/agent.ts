import { Executor } from '#agent'
import type { Config } from '#process/config'
import { type UpOptions, up } from './up.ts'

/** Runs a bridge, and sends the requests of the dispatchers that have this cluster in their file with `agent: true`. */
export function agent(
  config: Config,
  options: Omit<UpOptions, 'function' | 'builtin' | 'apiConcurrency'>,
): Promise<void> {
  const parts = { bridge: true, dispatch: false }
  return up(
    config,
    parts,
    { ...options, function: [], builtin: [], apiConcurrency: 1 },
    ({ kube, streams, runtime }, log) => {
      const reconcilers = () => runtime.bridge?.reconcilers()
      return new Executor({ js: streams.js, prefix: config.FAIRLEAD_PREFIX, kube, reconcilers, log })
    },
  )
}
