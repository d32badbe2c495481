import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog } from '#contracts'
import type { JetStream, LastOfEach, StoredMessage } from '#nats'
import { MAX_OBJECT_BYTES } from './event.ts'
import { ANCHOR, persist, type StreamNames } from './stream.ts'
import type { Allowance } from './types.ts'

/** Most reads find a few small objects. Larger pages are for reads that find more. */
const FIRST_PAGE_BYTES = 128 * 1024
export const NEXT_PAGE_BYTES = 2 * 2 ** 20
/** The maximum size of the message that fills a page: an object, and 64 KiB of headers. */
export const LARGEST_MESSAGE_BYTES = MAX_OBJECT_BYTES + 64 * 1024
/** The average size of the headers and subject of a message. */
const ENVELOPE_BYTES = 1024
const STALE_READ_PAUSE_MS = 1

/** The memory that must be free before a read of EVENTS begins. */
export const FIRST_READ_BYTES = FIRST_PAGE_BYTES + LARGEST_MESSAGE_BYTES

export interface PagesDeps {
  js: JetStream
  names: StreamNames
  /** True: the stream has replicas, or may get them now. */
  isReplicated: () => boolean
  log: RunLog
}

export interface ReadTerms {
  allowance?: Allowance
  signal?: AbortSignal
}

export interface Pages {
  messages: StoredMessage[]
  /** The stream's last sequence at a moment during the read. Undefined: it is not known. */
  end: number | undefined
}

export const sizeOf = ({ data }: Pick<StoredMessage, 'data'>): number => data.length + ENVELOPE_BYTES

/**
 * Reads the last message of each subject. The messages are at least as new as those confirmed before the call. Any
 * replica may answer, so with more than one replica a page is read again until it covers all messages that were
 * confirmed before the call and all that the previous pages covered. Otherwise, an object that is stored between two
 * pages would be missing if a replica that is behind sends the second page.
 */
export async function readPages(
  { js, names, isReplicated, log }: PagesDeps,
  filters: readonly string[],
  { allowance, signal }: ReadTerms,
): Promise<Pages> {
  const isUnreplicated = !isReplicated()
  const anchor = names.root + ANCHOR
  const subjects = [...filters.map((filter) => names.root + filter), ...(isUnreplicated ? [] : [anchor])]
  const ask = async (first: number | undefined): Promise<LastOfEach> => {
    const maxBytes = first === undefined ? FIRST_PAGE_BYTES : NEXT_PAGE_BYTES
    allowance?.demand(maxBytes + LARGEST_MESSAGE_BYTES)
    const request = async () => {
      using _asked = await js.incoming.acquire(maxBytes + LARGEST_MESSAGE_BYTES, signal)
      return await js.lastOfEach(names.stream, subjects, { first, maxBytes })
    }
    return persist(request, { signal, log })
  }
  const isStale = ({ upToSequence = 0 }: LastOfEach): boolean => !isUnreplicated && upToSequence < covered
  const confirmed = isUnreplicated ? 0 : persist(() => js.lastSequence(names.stream), { signal, log })
  const pages: StoredMessage[][] = []
  let [page, covered] = await Promise.all([ask(undefined), confirmed])
  for (let first: number | undefined; ; page = await ask(first)) {
    while (isStale(page)) {
      await sleep(STALE_READ_PAUSE_MS)
      page = await ask(first)
    }
    covered = page.upToSequence ?? covered
    const messages = page.messages.filter(({ subject }) => subject !== anchor)
    pages.push(messages)
    for (const message of messages) allowance?.note(message.subject.slice(names.root.length), sizeOf(message))
    first = page.next
    // A follower may be ahead of what the leader has applied.
    if (first === undefined)
      return { messages: withoutEarlier(pages), end: isUnreplicated ? page.upToSequence : await confirmed }
  }
}

function withoutEarlier(pages: StoredMessage[][]): StoredMessage[] {
  const [only, second] = pages
  if (only !== undefined && second === undefined) return only
  return [...new Map(pages.flat().map((message) => [message.subject, message])).values()]
}
