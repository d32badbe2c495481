/** Sequences of tokens without a running record, keyed by token subject. */
export type Tokens = Map<string, number>

interface TokenStored {
  subject: string
  sequence: number
  headers: Readonly<Record<string, string>>
}

/** Whether nothing was missed since that message. */
type IsWhole = (since: number) => boolean

/**
 * A token may only go when a running record that will queue it again has been stored after it, or when another token
 * replaces it. This holds for runs that never begin a pass, which is how soaked runs are, and without purging by hand.
 * Gives the token that has gone otherwise.
 */
export function addToken(
  tokens: Tokens,
  { subject, sequence, headers }: TokenStored,
  isWhole: IsWhole,
): string | undefined {
  const before = tokens.get(subject)
  tokens.set(subject, sequence)
  // The header contains the last sequence of the subject, as the server reports it for a repeated message.
  const isFirst = headers['Nats-Last-Sequence'] === '0'
  return before !== undefined && isFirst && isWhole(before) ? vanished(subject, before, `${sequence}`) : undefined
}

/** Returns tokens that are missing in an idle queue although no worker has run their keys for them. */
export const neverTaken = (tokens: Tokens, isWhole: IsWhole): string[] =>
  [...tokens]
    .filter(([, sequence]) => isWhole(sequence))
    .map(([subject, sequence]) => vanished(subject, sequence, 'the end'))

const vanished = (subject: string, sequence: number, by: string): string =>
  `token ${subject} (${sequence}) was gone by ${by}, and no record was stored for it`
