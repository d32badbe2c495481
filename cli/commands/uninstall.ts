import { setTimeout as sleep } from 'node:timers/promises'
import { withExistingStreams } from '#inspect'
import { type Held, heldBy, planUninstall, type Removal, uninstall, webhookUsers, withInstalled } from '#install'
import type { KubeClient } from '#kube'
import { EXIT, table, UsageError } from '#process/exit'
import { functionNamed, loadFunctions, type Selection } from '#process/functions'
import { openKube } from '#process/kube'
import { webhookResources } from '#process/webhooks/probe'
import type { Reconciler } from '#sdk'
import type { CommandContext } from '../options.ts'

export interface UninstallCommandOptions extends Selection {
  output: 'table' | 'json'
  dryRun: boolean
  crds: boolean
  team: boolean
  wait?: number
  releaseFinalizers: boolean
  reconciler?: string
}

const LOOK_AGAIN_MS = 1000
const SHOWN = 5

/**
 * Uninstalls functions, or lists what an uninstallation would delete and keep, the objects with finalizers, and the
 * number of queued keys.
 */
export async function uninstallFunctions(options: UninstallCommandOptions, context: CommandContext): Promise<void> {
  const { print, config, setExitCode } = context
  if (options.team && options.crds)
    throw new UsageError('--crds deletes the objects of all namespaces: with --team, leave that to the platform team')
  const selected = await loadFunctions(options)
  await using kube = await openKube(await config())
  const all = await withInstalled(kube, selected)
  const functions = options.reconciler === undefined ? all : [functionNamed(all, options.reconciler)]
  if (!options.dryRun && !options.releaseFinalizers) await untilFree(kube, functions, options)
  const plan = await planUninstall(kube, functions, options)
  const isRefused = plan.held.length > 0 && !options.releaseFinalizers
  const keys = await keysOf(functions, context)
  const isPlan = isRefused || options.dryRun
  const removals = isPlan
    ? plan.removals.map(asPlanned)
    : await uninstall(kube, plan, options.releaseFinalizers ? [...functions] : [], options.team)
  if (options.output === 'json') print(JSON.stringify({ removals, held: plan.held, keys }, null, 2))
  else print(shown(removals, plan.held, keys))
  if (!isPlan) await tellWhoNeedsWebhook(kube, functions, setExitCode)
  if (!isRefused) return
  setExitCode(EXIT.failed)
  process.stderr.write(
    'fairlead: nothing was removed: delete these objects first (--wait waits for that), or give their finalizers back ' +
      'with --release-finalizers, which leaves what the functions would have cleaned up\n',
  )
}

/** A script that goes on would remove the webhook, and the API server could not read objects any more. */
async function tellWhoNeedsWebhook(
  kube: KubeClient,
  functions: readonly Reconciler[],
  setExitCode: CommandContext['setExitCode'],
): Promise<void> {
  if (webhookResources(functions).length === 0) return
  const users = await webhookUsers(kube)
  if (users.length === 0) return
  setExitCode(EXIT.failed)
  process.stderr.write(`fairlead: leave the webhook where it is: ${users.join(', ')} need it\n`)
}

/** Resolves when no object has a finalizer of the functions, or after the time to wait. */
async function untilFree(
  kube: KubeClient,
  functions: readonly Reconciler[],
  { wait = 0, team }: UninstallCommandOptions,
): Promise<void> {
  const deadline = Date.now() + wait * 1000
  while (Date.now() < deadline && (await heldBy(kube, functions, team)).length > 0) await sleep(LOOK_AGAIN_MS)
}

/** Returns undefined if NATS does not answer. */
async function keysOf(
  functions: readonly Reconciler[],
  context: CommandContext,
): Promise<Record<string, number> | undefined> {
  const keys: Record<string, number> = {}
  try {
    await withExistingStreams(context, async ({ queue }) => {
      for (const { name } of functions) {
        const found = (await Array.fromAsync(queue.list({ reconciler: name }))).length
        if (found > 0) keys[name] = found
      }
    })
  } catch {
    return undefined
  }
  return keys
}

const asPlanned = ({ result, ...removal }: Removal) => ({
  ...removal,
  result: result === 'kept' ? result : `would be ${result}`,
})

function shown(
  removals: readonly (Omit<Removal, 'result'> & { result: string })[],
  held: readonly Held[],
  keys: Record<string, number> | undefined,
): string {
  const rows = removals.map(({ kind, name, result, because = '' }) => [kind, name, result, because])
  const waiting = held.map(
    ({ reconciler, objects, patching }) =>
      `${objects.length} objects cannot be deleted without function ${reconciler}: ${objects.slice(0, SHOWN).join(', ')}${objects.length > SHOWN ? ', …' : ''}${
        patching === 0 ? '' : `; for ${patching} of them it has set fields of others, which then stay`
      }`,
  )
  const queued = Object.entries(keys ?? {}).map(
    ([name, count]) => `${count} keys of ${name} are queued or wait; bridges sweep them when it is gone`,
  )
  const unknown = keys === undefined ? ['NATS cannot be asked which keys are queued'] : []
  return [table(['KIND', 'NAME', 'RESULT', 'BECAUSE'], rows), ...waiting, ...queued, ...unknown].join('\n')
}
