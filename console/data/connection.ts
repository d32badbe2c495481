import { oneLine } from '#host/exit'

/** How long an answer is believed: nothing is asked more often, however many tabs there are. */
const CHECK_MS = 1000
const ANSWERS_WITHIN_MS = 2000

export interface Connection<T> {
  /** Resolves with the connected server, or the reason why it is away. */
  now(): Promise<T | string>
  close(): Promise<void>
}

interface Way<T> {
  open: () => Promise<T>
  /** Rejects where the other side does not answer. */
  check: (opened: T) => Promise<unknown>
  close: (opened: T) => Promise<unknown>
}

/** A server that may be away at first, go away, and come back. */
export function connectionTo<T>({ open, check, close }: Way<T>): Connection<T> {
  let opened: T | undefined
  let opening: Promise<T> | undefined
  let checkedAt = Number.NEGATIVE_INFINITY
  let checking: Promise<string | undefined> | undefined

  // One that takes long goes on behind the answer that it is away.
  const connect = async (): Promise<T> => {
    opening ??= open().finally(() => {
      opening = undefined
    })
    return (opened = await opening)
  }
  const look = async (): Promise<string | undefined> => {
    try {
      await inTime(opened === undefined ? connect() : check(opened))
      return undefined
    } catch (error) {
      return oneLine(error instanceof Error ? error.message : String(error))
    } finally {
      checkedAt = performance.now()
    }
  }
  return {
    async now() {
      if (performance.now() - checkedAt > CHECK_MS || checking === undefined) {
        checkedAt = performance.now()
        checking = look()
      }
      const away = await checking
      return away ?? opened ?? 'not connected yet'
    },
    async close() {
      await opening?.catch(() => undefined)
      if (opened !== undefined) await close(opened)
    },
  }
}

/** Rejects when the answer does not come in time. */
async function inTime<T>(work: Promise<T>, ms = ANSWERS_WITHIN_MS): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error(`no answer within ${ms / 1000} s`)), ms)
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer))
}
