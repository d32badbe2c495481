import { PermissionViolationError } from 'nats'
import { type DeadLetter, type DeadLetters, type DeadReason, keyIn } from '#events'
import { isWrongSequence, type JetStream } from '#nats'
import { BY_HAND, type WorkQueue } from '#queue'

export interface DeadFilter {
  reconciler?: string
  reason?: DeadReason
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

export interface ReplayTools {
  js: JetStream
  queue: WorkQueue
  dead: DeadLetters
}

/** Returns a message to its stream, then removes it from DEAD. `text` describes the result. */
export async function replay(letter: DeadLetter, tools: ReplayTools): Promise<{ done: boolean; text: string }> {
  const back = await putBack(letter, tools)
  if (back.done) await tools.dead.remove(letter.id)
  return { done: back.done, text: `${letter.id} ${letter.subject}: ${back.text}` }
}

async function putBack(letter: DeadLetter, { js, queue, dead }: ReplayTools): Promise<{ done: boolean; text: string }> {
  const key = keyIn(letter)
  if (key) {
    if (!(await queue.reconcilers()).includes(key.reconciler))
      return left(`there is no queue of a reconciler ${key.reconciler}`)
    return { done: true, text: await queue.enqueue(key.reconciler, key.key, { cause: BY_HAND }) }
  }
  if (!dead.isFromEvents(letter)) return left('it has no place in EVENTS')
  if (letter.data.length < letter.bytes) return left('its body was not kept whole')
  const { promise: refused, reject } = Promise.withResolvers<never>()
  const forget = js.onRefusal((error) => error.subject === letter.subject && reject(error))
  try {
    // Fails if the subject has a message, which is newer.
    const headers = { ...ownHeaders(letter.headers), 'Nats-Expected-Last-Subject-Sequence': 0 }
    const { sequence } = await Promise.race([js.publish(letter.subject, letter.data, headers), refused])
    return { done: true, text: `published to ${letter.stream} as ${sequence}` }
  } catch (error) {
    if (isWrongSequence(error)) return left('a newer message stands there')
    if (error instanceof PermissionViolationError) return left(`this user of NATS may not publish to ${letter.stream}`)
    throw error
  } finally {
    forget()
  }
}

const left = (why: string) => ({ done: false, text: `left, ${why}` })

/** Leaves out the headers that instruct the server how to store the message. */
const ownHeaders = (headers: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith('Nats-')))
