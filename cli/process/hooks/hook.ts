import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import type { Invoke, RunLog } from '#contracts'
import { Budget } from '#primitives'
import type { Executable } from '../executable.ts'
import { UsageError } from '../exit.ts'
import { Program, type ProgramOptions } from '../program.ts'
import { type Finding, type HookConfig, verdictOn } from './config.ts'
import { contextOf, type Filter } from './context.ts'
import { outcomeOf, type Written } from './patches.ts'

/** A hook of shell-operator, and what becomes of it. */
export interface CheckedHook {
  findings: Finding[]
  /** Undefined if it cannot run. */
  config: HookConfig | undefined
}

export type HookOptions = Omit<ProgramOptions, 'lines' | 'folder'>

const CONFIG_TIMEOUT_SECONDS = 10
/** As for answers of programs. */
const MAX_WRITTEN_BYTES = 32 * 1024 * 1024

/** Asks the hook for its configuration. Throws a UsageError if it gives none. */
export async function checkHook(path: string, log: RunLog): Promise<CheckedHook> {
  const options = { lines: false, timeoutSeconds: CONFIG_TIMEOUT_SECONDS, concurrency: 1, variables: [] }
  const program = new Program({ ...options, command: `${resolve(path)} --config`, folder: dirname(path) })
  try {
    const signal = AbortSignal.timeout((CONFIG_TIMEOUT_SECONDS + 1) * 1000)
    return verdictOn(await program.call('', { signal, log }, (printed) => printed.toString()))
  } catch (error) {
    throw new UsageError(`${path} has no configuration: ${(error as Error).message}`, { cause: error })
  } finally {
    await program.stop()
  }
}

/** Returns a hook of shell-operator as a function. Throws a UsageError that names what cannot run. */
export async function hookFunction({ command, ...options }: HookOptions, log: RunLog): Promise<Executable> {
  const { config, findings } = await checkHook(command, log)
  if (config === undefined) {
    const refused = findings.filter(({ is }) => is === 'refused').map(({ text }) => `  ${text}`)
    throw new UsageError([`${command} cannot run:`, ...refused].join('\n'))
  }
  const program = new Program({
    ...options,
    command: resolve(command),
    lines: false,
    folder: dirname(command),
    isLogging: true,
  })
  // A call has its files, and processes of jq, only while it has a place.
  const places = new Budget(options.concurrency)
  const invoke: Invoke = async (input, context) => {
    const { object, ask, finalizing } = input
    if (ask !== undefined) throw new Error('a hook has no external system: remove spec.external of the Reconciler')
    const isGoing = object?.metadata.deletionTimestamp !== undefined
    if (object === null || (finalizing ? !config.hearsDeleted : isGoing)) return {}
    using _place = await places.acquire(1, context.signal)
    const bindingContext = await contextOf(
      config,
      { ...input, object },
      filtering(options.timeoutSeconds, context.signal),
    )
    if (bindingContext === undefined) return {}
    return outcomeOf(await writtenBy(program, bindingContext, context), { ...input, object })
  }
  return { invoke, stop: () => program.stop() }
}

/** Calls the hook with its files, which others cannot read. */
async function writtenBy(program: Program, asked: object[], { signal, log }: Parameters<Invoke>[1]): Promise<Written> {
  const folder = await mkdtemp(join(tmpdir(), 'fairlead-hook-'))
  try {
    const at = (name: string): string => join(folder, name)
    const paths = { context: at('binding-context.json'), patches: at('patches'), metrics: at('metrics') }
    await writeFile(paths.context, JSON.stringify(asked))
    for (const path of [paths.patches, paths.metrics]) await writeFile(path, '')
    const variables = {
      BINDING_CONTEXT_PATH: paths.context,
      KUBERNETES_PATCH_PATH: paths.patches,
      METRICS_PATH: paths.metrics,
    }
    await program.call('', { signal, log, variables }, () => {})
    return { patches: await contentOf(paths.patches), metrics: await contentOf(paths.metrics) }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function contentOf(path: string): Promise<string> {
  const found = await stat(path)
  // A pipe would be waited for.
  if (!found.isFile()) throw new Error('the hook has replaced a file of its answer: write to it')
  const { size } = found
  if (size > MAX_WRITTEN_BYTES)
    throw new Error(`the hook wrote ${size} bytes to a file: write ${MAX_WRITTEN_BYTES} at most`)
  return readFile(path, 'utf8')
}

/** Returns the results of one process of jq: null for an object without a result, a list for several. */
const filtering =
  (timeoutSeconds: number, signal: AbortSignal): Filter =>
  (filter, objects) =>
    new Promise((resolved, reject) => {
      const options = {
        signal,
        killSignal: 'SIGKILL' as const,
        timeout: timeoutSeconds * 1000,
        maxBuffer: MAX_WRITTEN_BYTES,
        env: { PATH: process.env['PATH'] },
      }
      // The filter may end with a comment.
      const each = `[.[] | [(${filter}\n)] | if length > 1 then . else .[0] end]`
      const child = execFile('jq', ['-c', each], options, (error, stdout) => {
        if (error === null) return resolved(JSON.parse(stdout) as unknown[])
        // The message of jq quotes the object.
        const { code, signal: killed } = error
        const why = (code as unknown) === 'ENOENT' ? 'jq is not in PATH: install it' : `jq ended with ${code ?? killed}`
        reject(new Error(`jqFilter ${filter} failed: ${why}`))
      })
      child.stdin?.on('error', () => {}).end(JSON.stringify(objects))
    })
