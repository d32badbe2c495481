import type { Abilities } from '#console'
import type { Config } from '#host/config'
import { commandJson } from './command-json.ts'
import { publishStored } from './publish-stored.ts'

export interface AbilityOptions {
  allowWrites: boolean
  /** Modules of functions, for previews and replays. Empty turns both off. */
  function: readonly string[]
  /** The environment of commands that run functions. */
  env: NodeJS.ProcessEnv
}

/** Returns what the console of this machine can do besides reading. */
export function abilitiesOf(settings: Config, { allowWrites, function: files, env }: AbilityOptions): Abilities {
  const publish: Abilities['publish'] = (ref, namespace, name) => publishStored(settings, ref, namespace, name)
  if (files.length === 0) return { writes: allowWrites, publish }
  // Each preview runs in a process of its own: a blocking function does not stop the console, and the module is loaded
  // in its current version.
  const { context, KUBECONFIG, NATS_URL, FAIRLEAD_PREFIX } = settings
  const given = { kubeconfig: KUBECONFIG, context, nats: [NATS_URL].flat().join(','), prefix: FAIRLEAD_PREFIX }
  const globals = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}`, value]))
  const output = ['-o', 'json', ...files.flatMap((file) => ['-f', file])]
  // The prefix contains the shard.
  const run = (...args: string[]) => commandJson([...globals, ...args, ...output], { ...env, FAIRLEAD_SHARD: '' })
  return {
    writes: allowWrites,
    publish,
    preview: (reconciler, namespace, name) =>
      run('run', reconciler, name, ...(namespace === undefined ? [] : ['-n', namespace]), '--dry-run'),
    replay: (sequence) => run('replay', String(sequence)),
  }
}
