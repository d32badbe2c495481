import { type Caller, errorOf, isSuccess, notJson, readAnswer } from './caller.ts'
import { ApiAnswerError, ApiError } from './errors.ts'
import { connectionError, deadlineError, type HttpAnswer } from './transport.ts'
import type { Answer, Status, WatchEvent, WatchOptions } from './types.ts'

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
  const deadline = setTimeout(() => stream.destroy(deadlineError(title, caller.host, bound, true)), bound)
  const onAbort = () => stream.destroy()
  signal?.addEventListener('abort', onAbort, { once: true })
  try {
    for await (const batch of lines(untilSilent(stream, silenceSeconds), { title, host: caller.host, onBytes }))
      for (const line of batch) {
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

type Opened = Answer | { code: number; stream: HttpAnswer }

async function open(
  caller: Caller,
  path: string,
  title: string,
  options: Omit<WatchOptions, 'silenceSeconds' | 'onBytes' | 'onOpen'>,
): Promise<HttpAnswer> {
  const { accept, headers, signal, allowBookmarks = true, sendInitialEvents, ...rest } = options
  const initial = sendInitialEvents === true ? { sendInitialEvents, resourceVersionMatch: 'NotOlderThan' } : {}
  const query = { watch: true, allowWatchBookmarks: allowBookmarks, ...rest, ...initial }
  const opened = await caller.send<Opened>({ method: 'GET', path, query, accept, headers, signal, alone: true }, head)
  if ('stream' in opened) return opened.stream
  throw errorOf(title, opened, caller.origin)
}

async function head(answer: HttpAnswer): Promise<Opened> {
  const code = answer.statusCode ?? 0
  return isSuccess({ code }) ? { code, stream: answer } : readAnswer(answer)
}

/** Ends if a requested chunk has not come within the time. The time that a slow consumer takes does not count. */
async function* untilSilent(stream: HttpAnswer, seconds: number | undefined): AsyncGenerator<Buffer, void> {
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

/**
 * Returns the lines that end in each chunk. Reads a chunk only when it is requested, so that a slow consumer slows down
 * the server.
 */
async function* lines(
  stream: AsyncIterable<Buffer>,
  { title, host, onBytes }: { title: string; host: string; onBytes: WatchOptions['onBytes'] },
): AsyncGenerator<string[], void, undefined> {
  const cutter = new LineCutter()
  try {
    for await (const chunk of stream) {
      onBytes?.(chunk.length)
      yield cutter.push(chunk)
    }
  } catch (error) {
    throw 'code' in (error as Error) ? connectionError(title, host, error as Error, true) : error
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

/** The limit of a line. By default etcd stores objects up to 1.5 MiB. */
const MAX_LINE_BYTES = 64 * 1024 * 1024
const NEWLINE = 0x0a

/**
 * Cuts bytes into lines. A chunk may end anywhere, also within a character: the search is for bytes, and only complete
 * lines are decoded.
 */
export class LineCutter {
  #pending: Buffer[] = []
  #pendingBytes = 0

  /** Returns the lines that this chunk completes, without their line ends. */
  push(chunk: Buffer): string[] {
    const lines: string[] = []
    let start = 0
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      lines.push(this.#complete(chunk.subarray(start, end)))
      start = end + 1
    }
    if (start < chunk.length) this.#keep(chunk.subarray(start))
    return lines
  }

  /** The bytes of the incomplete line. */
  get pendingBytes(): number {
    return this.#pendingBytes
  }

  #complete(end: Buffer): string {
    if (this.#pendingBytes === 0) return end.toString()
    const line = Buffer.concat([...this.#pending, end]).toString()
    this.#pending = []
    this.#pendingBytes = 0
    return line
  }

  #keep(part: Buffer): void {
    this.#pending.push(part)
    this.#pendingBytes += part.length
    if (this.#pendingBytes > MAX_LINE_BYTES) {
      throw new ApiAnswerError(`a line of the watch is longer than ${MAX_LINE_BYTES} bytes`)
    }
  }
}
