import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { z } from 'zod'
import { apiVersionOf, kindName, type ResourceRef } from '#contracts'
import type { FunctionAccess } from '#dispatch'
import { adapterNames, adapterOf, adapters, builtinNames, builtinOf, builtins } from '#functions'
import { grantKinds, type Reconciler } from '#sdk'
import type { Config } from './config.ts'
import { UsageError } from './exit.ts'
import { inShell } from './shell.ts'

/** The functions that a command line selects. */
export interface Selection {
  /** Modules that export functions. */
  function: readonly string[]
  /** Names of built-in functions, or `all`. */
  builtin: readonly string[]
  /** Names of adapters. Left out: none. */
  adapter?: readonly string[]
  /** Restricts the built-in functions to these namespaces. */
  namespaces?: string[]
  /** Kinds that objects may name (namedKind() of the package). Left out: none. */
  kinds?: readonly GrantedKind[]
}

export type GrantedKind = ResourceRef & { kind: string }

/** `Widget.v1.example.com=widgets` */
const kindText = (kind: GrantedKind): string => `${kindName(kind.kind, apiVersionOf(kind))}=${kind.resource}`

/** Returns the command that installs these functions on this cluster although their definitions break objects. */
export function forcedInstall(
  { function: files, builtin, adapter = [], namespaces, kinds }: Selection,
  { KUBECONFIG, context, FAIRLEAD_SHARD }: Partial<Pick<Config, 'KUBECONFIG' | 'context' | 'FAIRLEAD_SHARD'>> = {},
): string {
  const options: [option: string, value: string | undefined][] = [
    ...files.map((file): [string, string] => ['-f', file]),
    ['--builtin', builtin.join(',') || undefined],
    ['--adapter', adapter.join(',') || undefined],
    ['--namespaces', namespaces?.join(',')],
    ['--kinds', kinds?.map(kindText).join(',')],
    ['--kubeconfig', KUBECONFIG],
    ['--context', context],
    ['--shard', FAIRLEAD_SHARD],
  ]
  const words = options.flatMap(([option, value]) => (value === undefined ? [] : [option, inShell(value)]))
  return ['fairlead install --force', ...words].join(' ')
}

/** Returns the selected functions, or none. */
export async function loadFunctions({
  function: files,
  builtin,
  adapter = [],
  namespaces,
  kinds = [],
}: Selection): Promise<Reconciler[]> {
  if (namespaces !== undefined && builtin.length === 0)
    throw new UsageError('--namespaces is for built-in functions: add --builtin NAMES; others declare their namespaces')
  const selected = await builtinFunctions(builtin)
  const restricted = namespaces === undefined ? selected : selected.map((one) => ({ ...one, namespaces }))
  const strange = adapter.find((name) => !adapterNames.includes(name))
  if (strange !== undefined)
    throw new UsageError(`--adapter is "${strange}", and there is no such adapter: give ${adapterNames.join(', ')}`)
  const adapting = await adapters([...new Set(adapter)])
  const functions = [...(await Promise.all(files.map(exported))).flat(), ...restricted, ...adapting]
  const twice = functions.find((one, index) => functions.findIndex((other) => other.name === one.name) < index)
  if (twice) throw new UsageError(`two functions are named "${twice.name}": a Reconciler's name is unique in a cluster`)
  return functions.map((one) => grantKinds(one, kinds))
}

/** Returns the selected functions. Rejects if none is selected. */
export async function demandFunctions(selection: Selection): Promise<Reconciler[]> {
  const functions = await loadFunctions(selection)
  if (functions.length > 0) return functions
  throw new UsageError(`no functions are selected: give -f FILE, or --builtin with ${builtinNames.join(', ')} or all`)
}

/** Returns the functions of which a command names one: those of the modules, or the built-in ones. */
export const namableFunctions = (files: readonly string[], kinds: readonly GrantedKind[] = []): Promise<Reconciler[]> =>
  loadFunctions({ function: files, builtin: files.length === 0 ? ['all'] : [], kinds })

async function builtinFunctions(names: readonly string[]): Promise<Reconciler[]> {
  if (names.length === 0) return []
  const unknown = names.find((name) => name !== 'all' && !builtinNames.includes(name))
  if (unknown !== undefined)
    throw new UsageError(
      `--builtin is "${unknown}", and no built-in function has this name: give ${builtinNames.join(', ')} or all`,
    )
  return builtins(names.includes('all') ? builtinNames : [...new Set(names)])
}

/** Returns how a dispatcher gets the function of this name. Undefined: it is neither a built-in one nor an adapter's. */
export function fixForMissing(name: string): string | undefined {
  const [builtin, adapter] = [builtinOf(name), adapterOf(name)]
  const option = builtin ? `--builtin ${builtin}` : adapter && `--adapter ${adapter}`
  return option && `add ${option} to the arguments of this dispatcher, unless another one has the function`
}

/** Returns the function with that name; without a name, the only function. */
export function functionNamed(functions: readonly Reconciler[], name: string | undefined): Reconciler {
  const [only, ...others] = name === undefined ? functions : functions.filter((one) => one.name === name)
  if (only !== undefined && others.length === 0) return only
  const names = functions.map((one) => one.name).join(', ')
  throw new UsageError(
    name === undefined
      ? `select a function: ${names}`
      : `there is no function ${name}, but ${names}; -f FILE loads others`,
  )
}

async function exported(file: string): Promise<Reconciler[]> {
  if (!existsSync(file)) throw new UsageError(`there is no function module ${file}: give the path of a file`)
  const module = await import(pathToFileURL(resolve(file)).href).catch((cause: Error) => {
    throw new UsageError(`cannot load the function module ${file}: ${cause.message}${placeOf(cause)}`, { cause })
  })
  const found = Object.values(module as Record<string, unknown>)
    .flat()
    .filter(isReconciler)
  if (found.length === 0) throw new UsageError(`${file} exports no reconciler: export what reconciler({ … }) returns`)
  return found
}

/** Returns the place of a syntax error. Node.js puts it before the error in its stack (24: not for JavaScript). */
function placeOf({ stack = '' }: Error): string {
  const [, place] = /^(?:file:\/\/)?(\/.*:\d+)\n/.exec(stack) ?? []
  return place === undefined ? '' : ` (${place})`
}

const isReconciler = (value: unknown): value is Reconciler =>
  typeof value === 'object' && value !== null && 'reconcile' in value && 'for' in value && 'owns' in value

const file = z.string().min(1)

const entry = z
  .strictObject({
    origin: z.string().refine(isOrigin, 'give scheme, host and port alone, as in https://shops.example.com:8443'),
    reconcilers: z.array(z.string().min(1)).min(1).optional(),
    caFile: file.optional(),
    tokenFile: file.optional(),
    certFile: file.optional(),
    keyFile: file.optional(),
  })
  .refine(
    ({ certFile, keyFile }) => (certFile === undefined) === (keyFile === undefined),
    'certFile and keyFile belong together',
  )
  .refine(
    ({ origin, caFile, certFile }) => origin.startsWith('https:') || (caFile === undefined && certFile === undefined),
    'caFile and certFile need an https:// origin',
  )

function isOrigin(text: string): boolean {
  const url = URL.parse(text)
  return url !== null && /^https?:$/.test(url.protocol) && url.origin === text
}

/**
 * Reads the file that FAIRLEAD_FUNCTION_ACCESS names. Only the environment of the process names files with credentials;
 * a Reconciler cannot.
 */
export async function readFunctionAccess(path: string | undefined): Promise<FunctionAccess[]> {
  if (path === undefined) return []
  const wrong = (why: string, cause?: unknown) =>
    new UsageError(`FAIRLEAD_FUNCTION_ACCESS is ${JSON.stringify(path)}, which is not valid: ${why}`, { cause })
  const text = await readFile(path, 'utf8').catch((cause: Error) => {
    throw wrong(cause.message, cause)
  })
  const { parse } = await import('yaml')
  const content = contentOf(() => parse(text), wrong)
  const { success, data, error } = z.array(entry).safeParse(content)
  if (success) return data
  throw wrong(error.issues.map(({ path: at, message }) => `${at.join('.') || 'the file'}: ${message}`).join('; '))
}

function contentOf(parsed: () => unknown, wrong: (why: string, cause: unknown) => Error): unknown {
  try {
    return parsed()
  } catch (cause) {
    throw wrong((cause as Error).message, cause)
  }
}
