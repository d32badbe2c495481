import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { UsageError } from '#host/exit'
import type { Reconciler } from '#sdk'

/** The functions to install or to run: the built-in ones, or those that the given modules export. */
export async function loadFunctions(files: readonly string[]): Promise<Reconciler[]> {
  if (files.length === 0) return [...(await import('#functions')).builtins]
  const functions = (await Promise.all(files.map(exported))).flat()
  const twice = functions.find((one, index) => functions.findIndex((other) => other.name === one.name) < index)
  if (twice) throw new UsageError(`two functions are named "${twice.name}": a Reconciler's name is unique in a cluster`)
  return functions
}

/** The one of that name; without a name, the only one there is. */
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

/** Where the syntax is wrong: before the error itself, in its stack, where Node.js knows it (24: not of JavaScript). */
function placeOf({ stack = '' }: Error): string {
  const [, place] = /^(?:file:\/\/)?(\/.*:\d+)\n/.exec(stack) ?? []
  return place === undefined ? '' : ` (${place})`
}

const isReconciler = (value: unknown): value is Reconciler =>
  typeof value === 'object' && value !== null && 'reconcile' in value && 'for' in value && 'owns' in value
