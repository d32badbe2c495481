import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { RunContext } from '#contracts'
import { missingConfig } from '#spec'
import type { External } from './definition.ts'

/**
 * Reads the values that the function declares, one file each. The kubelet replaces the files when a Secret changes or a
 * token is renewed, so each call reads them. Rejects with a RetryAfterError that names a value whose file is missing or
 * empty.
 */
export async function readConfigFiles(declared: External['config'], folder: string): Promise<RunContext['config']> {
  if (declared === undefined) return undefined
  const values: Record<string, string> = {}
  for (const one of declared) {
    const file = join(folder, one.name)
    const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
      return ''
    })
    if (text === '') throw missingConfig(one.name, `the file ${file} is missing or empty: ${sourceOf(one)}`)
    values[one.name] = text
  }
  return values
}

function sourceOf(one: NonNullable<External['config']>[number]): string {
  if ('audience' in one) return `mount a token for the audience ${one.audience}`
  const [kind, { name, key }] =
    'secret' in one ? (['Secret', one.secret] as const) : (['ConfigMap', one.configMap] as const)
  return `it has the key ${key} of the ${kind} ${name} in the namespace of the pod`
}
