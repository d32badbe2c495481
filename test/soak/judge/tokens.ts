import { type History, isWhole, type Stored } from './history.ts'

/** Of each token subject, the sequence of the token that no running record has followed yet. */
export type Tokens = Map<string, number>

/**
 * A token may only go when a running record that will queue it again has been stored after it, or when another token
 * replaces it. This holds for runs that never begin a lap, which is how soaked runs are, and without purging by hand.
 */
export function addToken(history: History, { subject, sequence, headers }: Stored): void {
  const { tokens, wrong } = history
  const open = tokens.get(subject)
  // What the server had under this subject before, as it says itself when it repeats a message.
  const isFirst = headers['Nats-Last-Sequence'] === '0'
  if (open !== undefined && isFirst && isWhole(history, open)) wrong.push(vanished(subject, open, `${sequence}`))
  tokens.set(subject, sequence)
}

/** Somebody runs the key, for the token or with a mark for it. */
export const taken = ({ tokens }: Pick<History, 'tokens'>, subject: string | undefined): void => {
  if (subject !== undefined) tokens.delete(subject)
}

/** Of an idle queue: tokens that are gone although nobody has ever run their keys for them. */
export const neverTaken = (history: History): string[] =>
  [...history.tokens]
    .filter(([, sequence]) => isWhole(history, sequence))
    .map(([subject, sequence]) => vanished(subject, sequence, 'the end'))

const vanished = (subject: string, sequence: number, by: string): string =>
  `token ${subject} (${sequence}) was gone by ${by}, and no record was stored for it`
