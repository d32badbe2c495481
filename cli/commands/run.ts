import { stringify } from 'yaml'
import { namespacedName, type Outcome } from '#contracts'
import { type DryRunResult, type DryRunStep, dryRun } from '#dispatch'
import { referenceRule } from '#events'
import { dieBecause, EXIT, showsStacks, untilStopped } from '#process/exit'
import { functionNamed, type GrantedKind, namableFunctions } from '#process/functions'
import { guardFunctions } from '#process/isolation'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import type { Finish } from '#queue'
import { manifest } from '#sdk'
import { reconcilerSpec } from '#spec'
import { changeText } from '#testing'
import type { CommandContext } from '../options.ts'
import { existing, namespaceFor } from './one-object.ts'

export interface RunOptions {
  namespace?: string
  function: string[]
  kinds?: readonly GrantedKind[]
  output: 'text' | 'json'
}

export async function printDryRun(
  name: string,
  object: string,
  options: RunOptions,
  { config, print, setExitCode }: CommandContext,
): Promise<void> {
  const settings = await config()
  await using kube = await openKube(settings)
  const found = functionNamed(await namableFunctions(options.function, options.kinds), name)
  const key = { namespace: await namespaceFor(kube, found.for, options.namespace ?? 'default'), name: object }
  const log = await createLogger({ ...settings, LOG_LEVEL: showsStacks(process.env) ? 'warn' : 'error' })
  const { signal } = untilStopped()
  using guard = guardFunctions({
    files: options.function,
    leaseMs: settings.FAIRLEAD_LEASE_SECONDS * 1000,
    log,
    fatal: dieBecause(process.env),
  })
  const isReferenceOnly = referenceRule(settings.FAIRLEAD_REFERENCE_ONLY)
  const spec = reconcilerSpec.parse(manifest(found).spec)
  await existing(kube, spec.for, key, signal)
  const result = await dryRun({
    kube,
    name: found.name,
    spec,
    invoke: guard.invoke(found),
    object: key,
    isReferenceOnly,
    log,
    now: new Date(),
    signal,
  })
  print(options.output === 'json' ? JSON.stringify(result, null, 2) : textOf(result))
  if (isFailure(result.finish)) setExitCode(EXIT.failed)
}

const isFailure = ({ kind }: Finish): boolean => kind === 'error' || kind === 'terminal'

const textOf = ({ outcome, would, finish }: DryRunResult): string =>
  [
    ...(isFailure(finish) && outcome === undefined ? [] : [returnedText(outcome)]),
    would.length === 0 ? 'Nothing would be written.' : `It would:\n${would.map(stepText).join('\n')}`,
    ENDS[finish.kind](finish as never),
  ].join('\n\n')

function returnedText(outcome: Outcome | undefined): string {
  if (outcome === undefined)
    return 'The function was not called: its selection leaves the object out, or it is paused or going.'
  return Object.keys(outcome).length === 0
    ? 'The function returned nothing.'
    : `The function returned:\n${indented(stringify(outcome))}`
}

const ENDS = {
  done: () => 'The run would end: nothing left to do.',
  requeue: ({ at }: { at: Date }) => `The run would end, and the next one begin at ${at.toISOString()}.`,
  error: ({ message }: { message: string }) => `The run would fail, and be tried again: ${message}`,
  terminal: ({ message }: { message: string }) =>
    `The run would fail, and not be tried again before something changes: ${message}`,
}

function stepText(step: DryRunStep): string {
  if (step.would === 'perform') return `  perform ${step.effect}`
  if (step.would === 'tell') return `  tell ${step.type} ${step.reason}: ${step.message}`
  const { would, kind, namespace, name, differences, retained } = step
  const lines = differences.map((one) => `    ${changeText(one)}`)
  const object = `${kind} ${namespacedName({ namespace, name })}${retained ? ' (retained)' : ''}`
  return [`  ${would} ${object}`, ...lines].join('\n')
}

const indented = (text: string): string => text.trimEnd().replaceAll(/^/gm, '  ')
