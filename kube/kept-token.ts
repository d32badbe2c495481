import type { TokenSource } from './types.ts'

export interface KeptToken {
  token: string | undefined
  /** Epoch milliseconds. */
  goodUntil: number
}

/** A token that is asked for again when its time is over, or when the server has rejected it. */
export function keptToken(ask: () => Promise<KeptToken>, now: () => number, first?: KeptToken): TokenSource {
  let last = first
  return async (rejected) => {
    if (last === undefined || last.token === rejected || now() >= last.goodUntil) last = await ask()
    return last.token
  }
}
