import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { UsageError } from '#host/exit'
import type { Reconciler } from '#sdk'

/** Returns the functions that the modules export; without modules, the built-in functions. */
export async function loadFunctions(files: readonly string[]): Promise<Reconciler[]> {
  if (files.length === 0) return [...(await import('#functions')).builtins]
  const functions = (await Promise.all(files.map(exported))).flat()
  const twice = functions.find((one, index) => functions.findIndex((other) => other.name === one.name) < index)
  if (twice) throw new UsageError(`two functions are named "${twice.name}": a Reconciler's name is unique in a cluster`)
  return functions
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
  const found = Object.values(module as Record<string, unknown>).filter(isReconciler)
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
