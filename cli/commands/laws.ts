import type { Invoke, KubeObject } from '#contracts'
import { httpFunction } from '#dispatch'
import { executable } from '#process/executable'
import { EXIT, UsageError } from '#process/exit'
import { inShell, quoted } from '#process/shell'
import { isRefused, type ReconcilerSpec, readReconciler } from '#spec'
import { type RemoteFunction, remoteLawsOf } from '#testing/remote'
import type { CommandContext } from '../options.ts'
import { examplesIn } from './manifests.ts'

export interface LawsOptions {
  exec?: string
  lines?: boolean
  env?: string[]
  url?: string
  timeoutSeconds: number
  seed: number
  histories: number
  law?: string
}

/** Checks the laws of a function in any language, on histories that are made from its definition. Needs no server. */
export async function checkLaws(
  paths: readonly string[],
  options: LawsOptions,
  { print, setExitCode }: CommandContext,
): Promise<void> {
  const files = { paths, objects: (await Promise.all(paths.map(examplesIn))).flat() }
  const declared = reconcilerIn(files)
  const program = callable(declared, options)
  const said: string[] = []
  let calls = 0
  const invoke: Invoke = async (input, context) => {
    calls++
    said.length = 0
    const note = (_: object, line: string): void => void (said.length < MOST_LINES && said.push(line))
    const answer = await program.invoke(input, { ...context, log: { ...context.log, info: note, warn: note } })
    said.length = 0
    return answer
  }
  const remote = { ...declared, definition: definitionIn(files, declared.spec), objects: files.objects, invoke }
  /** Laws that hold, or the reason why they were not tried. */
  const found = new Map<string, { holds: boolean; why?: string | undefined }>()
  try {
    for (let seed = options.seed; seed < options.seed + options.histories; seed++)
      for (const { law, why, holds } of lawsOn(remote, seed, repeating(paths, options, seed))) {
        const before = found.get(law)
        if (before?.holds === false || (options.law ?? law) !== law) continue
        let left = why
        said.length = 0
        try {
          await holds({ skip: (note) => void (left = note.replace(/^not tried: /, '')) })
          if (before === undefined || left === undefined) found.set(law, { holds: true, why: left })
        } catch (error) {
          found.set(law, { holds: false })
          const lines = [(error as Error).message, ...said.map((line) => `the program wrote: ${line}`)].join('\n')
          print(`✗ ${law}\n${lines.replaceAll(/^/gm, '  ')}`)
        }
      }
  } finally {
    await program.stop()
  }
  if (found.size === 0) throw new UsageError(`--law is ${JSON.stringify(options.law)}, and there is no such law`)
  const all = [...found]
  for (const [law, { holds, why }] of all)
    if (holds) print(why === undefined ? `✓ ${law}` : `- ${law} (not tried: ${why})`)
  const broken = all.filter(([, { holds }]) => !holds).length
  const held = all.filter(([, { holds, why }]) => holds && why === undefined).length
  print(`${held} laws hold, ${broken} do not, ${all.length - held - broken} were not tried; ${calls} calls`)
  setExitCode(broken > 0 ? EXIT.failed : EXIT.ok)
}

/** The lines of a failed call that are shown. */
const MOST_LINES = 20

interface Files {
  paths: readonly string[]
  objects: readonly KubeObject[]
}

interface Declared {
  name: string
  spec: ReconcilerSpec
}

function reconcilerIn({ paths, objects }: Files): Declared {
  const [found, other] = objects.filter(
    ({ kind, apiVersion }) => kind === 'Reconciler' && apiVersion.startsWith('fairlead.dev/'),
  )
  if (found === undefined || other !== undefined) {
    const what = found === undefined ? 'no Reconciler' : 'several Reconcilers'
    throw new UsageError(`${paths.join(', ')} has ${what}: give the files of one`)
  }
  const spec = readReconciler(found)
  if (isRefused(spec)) throw new UsageError(`Reconciler ${found.metadata.name} is not valid: ${spec.message}`)
  return { name: found.metadata.name, spec }
}

function definitionIn({ paths, objects }: Files, { for: primary }: ReconcilerSpec): KubeObject | undefined {
  const { kind, group, resource } = primary
  const name = `${resource}.${group}`
  const definition = objects.find((one) => one.kind === 'CustomResourceDefinition' && one.metadata.name === name)
  if (definition === undefined && !objects.some((one) => one.kind === kind))
    throw new UsageError(`${paths.join(', ')} has neither the CustomResourceDefinition ${name} nor an example: add one`)
  return definition
}

function callable(
  { name, spec }: Declared,
  { exec, lines = false, env = [], url, timeoutSeconds }: LawsOptions,
): { invoke: Invoke; stop: () => Promise<void> | void } {
  if ((exec === undefined) === (url === undefined))
    throw new UsageError('give --exec PROGRAM or --url URL, one of the two')
  if (exec !== undefined) return executable({ command: exec, lines, timeoutSeconds, concurrency: 1, variables: env })
  const called = httpFunction({
    name,
    spec,
    url: url ?? '',
    cluster: 'laws',
    now: () => new Date(),
    random: Math.random,
  })
  const invoke: Invoke = (input, context) =>
    called.invoke(input, { ...context, signal: AbortSignal.timeout(timeoutSeconds * 1000) })
  return { invoke, stop: () => called.close() }
}

interface LawRow {
  law: string
  /** Why the history cannot try it. */
  why: string | undefined
  holds: (context: { skip: (note: string) => void }) => Promise<void>
}

function lawsOn(remote: RemoteFunction, seed: number, repeat: (which: string, law: string) => string): LawRow[] {
  try {
    return remoteLawsOf(remote, seed, repeat).map(([name, holds]) => {
      const [, law = name, why] = /^(.*?)(?: \(not tried: (.*)\))?$/.exec(name) ?? []
      return { law, why, holds }
    })
  } catch (error) {
    throw new UsageError((error as Error).message, { cause: error })
  }
}

/** Returns the command that repeats one case of a law on this history. */
function repeating(
  paths: readonly string[],
  { exec, lines, env = [], url, timeoutSeconds }: LawsOptions,
  seed: number,
): (which: string, law: string) => string {
  const how = exec === undefined ? ['--url', url ?? ''] : ['--exec', exec]
  const more = [...(lines ? ['--lines'] : []), ...(env.length > 0 ? ['--env', env.join(',')] : [])]
  const limits = ['--timeout-seconds', `${timeoutSeconds}`, '--seed', `${seed}`, '--histories', '1']
  const words = [...paths, ...how, ...more, ...limits].map(inShell).join(' ')
  return (which, law) => `FAIRLEAD_CASE=${which} npx fairlead laws ${words} --law ${quoted(law)}`
}
