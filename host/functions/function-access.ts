import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import type { FunctionAccess } from '#dispatch'
import { UsageError } from '#host/exit'

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
