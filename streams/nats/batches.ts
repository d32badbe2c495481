import type { Msg } from 'nats'
import { JetStreamError } from './errors.ts'
import { fromDirect, type StoredMessage, statusOf } from './messages.ts'

/** Sends one request, and resolves with its answers up to the last one. */
export type Batches = (subject: string, query: string, isLast: (message: Msg) => boolean) => Promise<Msg[]>

export interface LastOfEach {
  messages: StoredMessage[]
  /** The stream's last sequence that this answer covers. Undefined: no message matched. */
  upToSequence: number | undefined
  /** The first sequence of the next page. Undefined: this is the last page. */
  next: number | undefined
}

export interface PageOptions {
  /** The first sequence of the page. */
  first?: number
  /** The page ends with the message that reaches this size, in bytes. */
  maxBytes: number
}

export interface ScanOptions {
  pageSize?: number
  /** The first sequence to read. */
  first?: number
  /** Only messages that were stored at this time or later. */
  since?: Date
}

export interface FromOptions {
  first: number
  /** The page ends with the message that reaches this size, in bytes. */
  maxBytes: number
}

export interface PageFrom {
  messages: StoredMessage[]
  /** The first sequence of the next page. Undefined: the server had nothing more when it answered. */
  next: number | undefined
}

interface Batch {
  messages: StoredMessage[]
  /** Undefined: no message matches. */
  marker: Msg | undefined
}

const SCAN_PAGE_BYTES = 4 * 2 ** 20
const FROM_PAGE_MESSAGES = 2048

export async function lastOfEach(
  batches: Batches,
  stream: string,
  subjects: string[],
  page: PageOptions | undefined,
): Promise<LastOfEach> {
  const limits = page && { max_bytes: page.maxBytes, ...(page.first !== undefined && { seq: page.first }) }
  const read = await readLast(batches, stream, { multi_last: subjects, ...limits })
  if (page !== undefined || read.next === undefined) return read
  throw new JetStreamError(`batch read of ${stream}: more than one answer holds`, 413, 0)
}

export async function* scan(
  batches: Batches,
  stream: string,
  subject: string,
  { pageSize = 500, first = 1, since }: ScanOptions,
): AsyncGenerator<StoredMessage> {
  let from: object = since === undefined ? { seq: first } : { start_time: since.toISOString() }
  for (;;) {
    const query = { batch: pageSize, max_bytes: SCAN_PAGE_BYTES, next_by_subj: subject, ...from }
    const { messages, next } = await readFrom(batches, stream, query)
    // For a start time in the future, the server begins at the first message.
    yield* since === undefined ? messages : messages.filter(({ storedAt }) => storedAt >= since.getTime())
    if (next === undefined) return
    from = { seq: next }
  }
}

export function pageFrom(
  batches: Batches,
  stream: string,
  subject: string,
  { first, maxBytes }: FromOptions,
): Promise<PageFrom> {
  const query = { batch: FROM_PAGE_MESSAGES, max_bytes: maxBytes, next_by_subj: subject, seq: first }
  return readFrom(batches, stream, query)
}

async function readFrom(batches: Batches, stream: string, query: object): Promise<PageFrom> {
  const { messages, marker } = await read(batches, stream, query, 'scan')
  const last = messages.at(-1)?.sequence
  const isWhole = marker === undefined || last === undefined || pendingAfter(marker) === 0
  return { messages, next: isWhole ? undefined : last + 1 }
}

async function readLast(batches: Batches, stream: string, query: object): Promise<LastOfEach> {
  const { messages, marker } = await read(batches, stream, query, 'batch read')
  if (marker === undefined) return { messages, upToSequence: undefined, next: undefined }
  const last = messages.at(-1)?.sequence
  const isWhole = last === undefined || pendingAfter(marker) === 0
  const upToSequence = Number(marker.headers?.get('Nats-UpTo-Sequence'))
  return { messages, upToSequence, next: isWhole ? undefined : last + 1 }
}

async function read(batches: Batches, stream: string, query: object, what: string): Promise<Batch> {
  const isLast = (message: Msg) => statusOf(message) !== 0
  const answers = await batches(`$JS.API.DIRECT.GET.${stream}`, JSON.stringify(query), isLast)
  const marker = answers.pop()
  const status = marker?.headers?.code ?? 0
  if (status === 404 && answers.length === 0) return { messages: [], marker: undefined }
  if (status !== 204) throw new JetStreamError(`${what} of ${stream}: ${marker?.headers?.description}`, status, 0)
  return { messages: answers.map(fromDirect), marker }
}

const pendingAfter = ({ headers }: Msg): number => Number(headers?.get('Nats-Num-Pending'))
