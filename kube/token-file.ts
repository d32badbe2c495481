import { readFile } from 'node:fs/promises'
import { ClusterAccessError } from './errors.ts'
import { keptToken } from './kept-token.ts'
import type { TokenSource } from './types.ts'

/**
 * The kubelet renews the token of a pod in its file after 80 % of its lifetime. client-go reads the file once a minute
 * too.
 */
const MAX_AGE_MS = 60_000

/**
 * A token in a file that another process renews. The file is read again when the token is a minute old, or when the
 * server has rejected it.
 */
export function tokenFile(path: string, now: () => number): TokenSource {
  return keptToken(async () => ({ token: await readToken(path), goodUntil: now() + MAX_AGE_MS }), now)
}

async function readToken(path: string): Promise<string> {
  let token: string
  try {
    token = (await readFile(path, 'utf8')).trim()
  } catch (cause) {
    throw new ClusterAccessError(`the token file ${path} cannot be read: ${(cause as Error).message}`, { cause })
  }
  if (token === '') throw new ClusterAccessError(`the token file ${path} is empty`)
  return token
}
