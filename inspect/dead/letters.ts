import type { DeadLetter, DeadLetters, DeadReason } from '#events'

export interface DeadFilter {
  reconciler?: string | undefined
  reason?: DeadReason | undefined
}

export async function* selectLetters(dead: DeadLetters, filter: DeadFilter): AsyncGenerator<DeadLetter> {
  for await (const letter of dead.list())
    if (
      (filter.reconciler === undefined || filter.reconciler === letter.reconciler) &&
      (filter.reason === undefined || filter.reason === letter.reason)
    )
      yield letter
}

/** Returns the data as text; undefined if it is not UTF-8. */
export function textOf(data: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(data)
  } catch {
    return undefined
  }
}
