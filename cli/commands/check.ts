import { namespacedName } from '#contracts'
import { EXIT, UsageError } from '#process/exit'
import { demandFunctions, type Selection } from '#process/functions'
import { isResource, type Violation } from '#sdk'
import type { CommandContext } from '../options.ts'
import { filesIn, objectsIn } from './manifests.ts'

export interface CheckOptions extends Selection {
  output: 'text' | 'json'
}

interface CheckedObject {
  file: string
  kind: string
  /** `namespace/name` */
  object: string
  /** False: no function has this kind. */
  isChecked: boolean
  refusals: Violation[]
  warnings: Violation[]
}

const UNCHECKED = { refusals: [], warnings: [], unchecked: [] }

/** Checks objects in files as far as the API server would refuse them, and `validate` does. Needs no server. */
export async function check(
  paths: readonly string[],
  options: CheckOptions,
  { print, setExitCode }: CommandContext,
): Promise<void> {
  const kinds = (await demandFunctions(options)).map((one) => one.for).filter(isResource)
  const found: CheckedObject[] = []
  const unchecked: Record<string, readonly string[]> = {}
  for (const file of (await Promise.all(paths.map(filesIn))).flat())
    for (const object of await objectsIn(file)) {
      const kind = kinds.find((one) => one.kind === object.kind && object.apiVersion.startsWith(`${one.group}/`))
      const about = { file, kind: object.kind, object: namespacedName(object.metadata), isChecked: kind !== undefined }
      const { refusals, warnings, unchecked: left } = kind?.check(object) ?? UNCHECKED
      found.push({ ...about, refusals, warnings })
      if (left.length > 0) unchecked[object.kind] = left
    }
  if (!found.some(({ isChecked }) => isChecked)) {
    const names = kinds.map(({ kind, group }) => `${kind} of ${group}`).join(', ')
    throw new UsageError(
      `there is nothing to check in ${paths.join(', ')}: these functions define ${names || 'no kind'}`,
    )
  }
  print(options.output === 'json' ? JSON.stringify({ objects: found, unchecked }, null, 2) : textOf(found, unchecked))
  setExitCode(found.some(({ refusals }) => refusals.length > 0) ? EXIT.failed : EXIT.ok)
}

function textOf(found: readonly CheckedObject[], unchecked: Record<string, readonly string[]>): string {
  const count = (is: (one: CheckedObject) => boolean): number => found.filter(is).length
  const refused = count(({ refusals }) => refusals.length > 0)
  const left = count(({ isChecked }) => !isChecked)
  return [
    ...found.flatMap(linesOf),
    `${found.length} objects: ${found.length - refused - left} admitted, ${refused} refused, ${left} not checked`,
    ...Object.entries(unchecked).map(([kind, rules]) => `${kind}: only the API server checks ${rules.join('; ')}`),
  ].join('\n')
}

function linesOf({ file, kind, object, isChecked, refusals, warnings }: CheckedObject): string[] {
  const name = `${file}: ${kind} ${object}`
  if (!isChecked) return [`${name} is not checked: no function here defines this kind`]
  if (refusals.length === 0 && warnings.length === 0) return []
  return [
    `${name} is ${refusals.length > 0 ? 'refused' : 'admitted with warnings'}`,
    ...refusals.map(({ path, message }) => `  ${path}: ${message}`),
    ...warnings.map(({ path, message }) => `  warning: ${path}: ${message}`),
  ]
}
