import type { TokenSource } from './types.ts'

export interface KeptToken {
  token: string | undefined
  /** The expiry time in epoch milliseconds. */
  goodUntil: number
}

/** Returns a source that asks for a new token when the last one has expired, or when the server has rejected it. */
export function keptToken(ask: () => Promise<KeptToken>, now: () => number, first?: KeptToken): TokenSource {
  let last = first
  return async (rejected) => {
    if (last === undefined || last.token === rejected || now() >= last.goodUntil) last = await ask()
    return last.token
  }
}
