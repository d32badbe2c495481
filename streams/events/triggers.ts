import type { Msg } from 'nats'
import type { RunLog } from '#contracts'
import type { JetStream } from '#nats'
import { pause } from '#primitives'
import { type CloudEvent, PoisonEventError } from './cloudevent.ts'
import { fromNats } from './codec.ts'
import { isKey, parseKey } from './subjects.ts'

/**
 * A request to run one object, from a program or another system. It names the object, or it is a CloudEvent, from which
 * the Reconciler's declaration takes the name.
 */
export interface Trigger {
  /** The name of the Reconciler. */
  reconciler: string
  of: { namespace: string | undefined; name: string } | { event: CloudEvent }
  /** One line, which may be empty. */
  cause: string
}

/**
 * The answer to a trigger, as JSON. `result`: a run that starts later than the trigger is certain. `refused`: no run is
 * caused by it, and a repetition would not change that. `againMs`: nothing was queued; ask again after this time.
 */
export type TriggerAnswer = { result: 'queued' | 'coalesced' } | { refused: string } | { againMs: number }

export type TakeTrigger = (trigger: Trigger) => Promise<TriggerAnswer>

/** Returns the subject of triggers of a Reconciler: of one of its keys, or without a key, of CloudEvents. */
export const triggerSubject = (root: string, reconciler: string, key?: string): string =>
  `${root}trigger.${reconciler.replaceAll('.', '_')}${key === undefined ? '' : `.${key}`}`

const MAX_BYTES = 64 * 1024
const MAX_CAUSE_CHARS = 200
/** The triggers in progress in one bridge. */
const AT_ONCE = 256
const BUSY_MS = 250
/** How often a bridge asks for the permission to receive triggers, if its user of NATS does not have it. */
const SUBSCRIBE_EVERY_MS = 60_000

/**
 * Receives triggers until the signal, and answers each when `take` has. Bridges share them. A trigger whose `take` fails
 * is not answered, so its sender asks again.
 */
export async function acceptTriggers(
  js: JetStream,
  { root, log, signal }: { root: string; log: RunLog; signal: AbortSignal },
  take: TakeTrigger,
): Promise<void> {
  let inProgress = 0
  const answer = async (message: Msg): Promise<void> => {
    if (inProgress >= AT_ONCE) return reply(js, message, { againMs: BUSY_MS })
    inProgress++
    try {
      reply(js, message, await answerTo(message, root, take))
    } catch (error) {
      log.warn({ err: error, subject: message.subject }, 'a trigger was not accepted; its sender has to repeat it')
    } finally {
      inProgress--
    }
  }
  while (!signal.aborted) {
    const refused = new AbortController()
    const subscription = js.nc.subscribe(`${root}trigger.>`, {
      queue: 'bridges',
      callback: (error, message) => (error ? refused.abort() : void answer(message)),
    })
    await new Promise<void>((resolve) => {
      for (const end of [signal, refused.signal]) end.addEventListener('abort', () => resolve(), { once: true })
      if (signal.aborted) resolve()
    })
    subscription.unsubscribe()
    if (signal.aborted) return
    log.warn(
      { subject: `${root}trigger.>` },
      'triggers are not received: the user of this bridge may not subscribe there; bring users.conf of NATS up to date',
    )
    await pause(SUBSCRIBE_EVERY_MS, signal)
  }
}

/** Answers go to inboxes only: whoever may trigger chooses the subject of the answer, and this process may write events. */
function reply({ outbox }: JetStream, { reply: subject }: Msg, answer: TriggerAnswer): void {
  if (subject?.startsWith('_INBOX.')) outbox.send(subject, JSON.stringify(answer))
}

async function answerTo(message: Msg, root: string, take: TakeTrigger): Promise<TriggerAnswer> {
  const trigger = triggerIn(message, root)
  return 'refused' in trigger ? trigger : take(trigger)
}

function triggerIn(message: Msg, root: string): Trigger | { refused: string } {
  const { subject, data } = message
  const [, part = '', ...rest] = subject.slice(root.length).split('.')
  const reconciler = part.replaceAll('_', '.')
  const key = rest.join('.')
  if (data.length > MAX_BYTES) return tooLarge(data.length)
  if (key !== '') {
    if (!isKey(key)) return { refused: `${key} is not a key: write NAMESPACE.NAME, and _ for no namespace` }
    return { reconciler, of: parseKey(key), cause: causeOf(Buffer.from(data).toString()) }
  }
  // The client decodes headers when they are read.
  const { headers } = message
  const texts = (headers?.keys() ?? []).map((name): [string, string] => [name, headers?.get(name) ?? ''])
  const bytes = data.length + texts.flat().reduce((sum, { length }) => sum + length, 0)
  if (bytes > MAX_BYTES) return tooLarge(bytes)
  try {
    const event = fromNats({ headers: Object.fromEntries(texts), data })
    return { reconciler, of: { event }, cause: causeOf(`${event.type} ${event.id} of ${event.source}`) }
  } catch (error) {
    if (!(error instanceof PoisonEventError)) throw error
    return { refused: `the trigger names no key, and is not a CloudEvent: ${error.message}` }
  }
}

const tooLarge = (bytes: number) => ({ refused: `the trigger has ${bytes} bytes, more than ${MAX_BYTES}` })

/** Returns the text in one line, without the characters that change the direction of text. */
function causeOf(text: string): string {
  const line = text.replaceAll(/[\p{Cc}\p{Bidi_Control}\s]+/gu, ' ').trim()
  return line.slice(0, MAX_CAUSE_CHARS).toWellFormed()
}
