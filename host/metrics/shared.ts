const AT_LEAST_MS = 1000
const AT_MOST_MS = 60_000
/** nats-server blocks writes to a stream while it counts its messages: 28 ms with 300,000 timers. */
const TIMES_AS_LONG = 100

/**
 * Shares one answer among all callers within a second, or within 100 times the duration of the request, but at most a
 * minute.
 */
export function shared<T>(ask: () => Promise<T>, now: () => number = () => performance.now()): () => Promise<T> {
  let last: { answer: Promise<T>; until: number } | undefined
  return () => {
    if (last !== undefined && now() <= last.until) return last.answer
    const began = now()
    const asked = { answer: ask(), until: began + AT_LEAST_MS }
    const settled = () => {
      const took = now() - began
      asked.until = began + Math.min(AT_MOST_MS, Math.max(AT_LEAST_MS, TIMES_AS_LONG * took))
    }
    asked.answer.then(settled, () => undefined)
    last = asked
    return asked.answer
  }
}
