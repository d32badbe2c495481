import { readFile } from 'node:fs/promises'
import { ClusterAccessError } from './errors.ts'
import { keptToken } from './kept-token.ts'
import type { TokenSource } from './types.ts'

/** The kubelet renews a pod's token in its file when 80 % of its time has passed; client-go reads it once a minute too. */
const MAX_AGE_MS = 60_000

/** A token that is renewed in its file by somebody else: read again when a minute old, or rejected by the server. */
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
