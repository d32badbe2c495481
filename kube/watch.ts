import type { IncomingMessage } from 'node:http'
import { type Answer, errorOf, isSuccess, notJson, readAnswer } from './body.ts'
import type { Caller } from './caller.ts'
import { connectionError, deadlineError } from './connection-errors.ts'
import { ApiAnswerError, ApiError } from './errors.ts'
import { LineCutter } from './lines.ts'
import type { Status, WatchEvent, WatchOptions } from './types.ts'

/** The time after timeoutSeconds at which the client closes a watch: a live server ends it at timeoutSeconds. */
const GRACE_SECONDS = 5
const DEFAULT_TIMEOUT_SECONDS = 290

/** Whether the event is the bookmark after the existing objects of a watch with sendInitialEvents. */
export const endsInitialEvents = (event: WatchEvent<unknown>): boolean =>
  event.type === 'BOOKMARK' && event.object.metadata.annotations?.['k8s.io/initial-events-end'] === 'true'

export async function* watchEvents<T>(
  caller: Caller,
  path: string,
  { timeoutSeconds = DEFAULT_TIMEOUT_SECONDS, silenceSeconds, onBytes, onOpen, ...options }: WatchOptions,
): AsyncGenerator<WatchEvent<T>, void, undefined> {
  const title = `watch of ${path}`
  const stream = await open(caller, path, title, { timeoutSeconds, ...options })
  onOpen?.()
  const { signal } = options
  const bound = (timeoutSeconds + GRACE_SECONDS) * 1000
  const deadline = setTimeout(() => stream.destroy(deadlineError(title, caller.host, bound, false)), bound)
  const onAbort = () => stream.destroy()
  signal?.addEventListener('abort', onAbort, { once: true })
  try {
    for await (const line of lines(untilSilent(stream, silenceSeconds), { title, host: caller.host, onBytes })) {
      signal?.throwIfAborted()
      yield parseEvent<T>(title, line)
    }
  } catch (error) {
    signal?.throwIfAborted()
    throw error
  } finally {
    clearTimeout(deadline)
    signal?.removeEventListener('abort', onAbort)
    stream.destroy()
  }
}

type Opened = Answer | { code: number; stream: IncomingMessage }

async function open(
  caller: Caller,
  path: string,
  title: string,
  options: Omit<WatchOptions, 'silenceSeconds' | 'onBytes' | 'onOpen'>,
): Promise<IncomingMessage> {
  const { accept, headers, signal, allowBookmarks = true, sendInitialEvents, ...rest } = options
  const initial = sendInitialEvents === true ? { sendInitialEvents, resourceVersionMatch: 'NotOlderThan' } : {}
  const query = { watch: true, allowWatchBookmarks: allowBookmarks, ...rest, ...initial }
  const opened = await caller.send<Opened>({ method: 'GET', path, query, accept, headers, signal, alone: true }, head)
  if ('stream' in opened) return opened.stream
  throw errorOf(title, opened, caller.origin)
}

async function head(answer: IncomingMessage): Promise<Opened> {
  const code = answer.statusCode ?? 0
  return isSuccess({ code }) ? { code, stream: answer } : readAnswer(answer)
}

/** Ends if a requested chunk has not come within the time. The time that a slow consumer takes does not count. */
async function* untilSilent(stream: IncomingMessage, seconds: number | undefined): AsyncGenerator<Buffer, void> {
  if (seconds === undefined) return yield* stream as AsyncIterable<Buffer>
  let isAwaited = true
  let isSilent = false
  const timer = setTimeout(() => {
    isSilent = isAwaited
    if (isSilent) stream.destroy()
    else timer.refresh()
  }, seconds * 1000)
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      isAwaited = false
      yield chunk
      isAwaited = true
      timer.refresh()
    }
  } catch (error) {
    if (!isSilent) throw error
  } finally {
    clearTimeout(timer)
  }
}

/** Reads the stream only when a line is requested, so that a slow consumer slows down the server. */
async function* lines(
  stream: AsyncIterable<Buffer>,
  { title, host, onBytes }: { title: string; host: string; onBytes: WatchOptions['onBytes'] },
): AsyncGenerator<string, void, undefined> {
  const cutter = new LineCutter()
  try {
    for await (const chunk of stream) {
      onBytes?.(chunk.length)
      yield* cutter.push(chunk)
    }
  } catch (error) {
    throw 'code' in (error as Error) ? connectionError(title, host, error as Error, false) : error
  }
  if (cutter.pendingBytes > 0) throw new ApiAnswerError(`${title}: it ended in the middle of a line`)
}

function parseEvent<T>(title: string, line: string): WatchEvent<T> {
  const event = parseLine(title, line)
  if (event.type === 'ERROR') throw new ApiError(title, event.object)
  return event as WatchEvent<T>
}

function parseLine(title: string, line: string): { type: 'ERROR'; object: Status } | WatchEvent<unknown> {
  try {
    return JSON.parse(line)
  } catch {
    throw notJson(`${title}: a line`, line)
  }
}
