import { expect, it } from 'vitest'
import { doubling, repeat, retry } from '#primitives'

/** Fails so many times, then gives the number of attempts. */
function failing(times: number) {
  let attempts = 0
  return async () => {
    if (attempts++ < times) throw new Error(`attempt ${attempts}`)
    return attempts
  }
}

it('attempts until one succeeds, and asks the policy after each failure', async () => {
  const errors: string[] = []
  const pauseMs = (error: unknown) => (errors.push((error as Error).message), 0)
  expect(await retry(failing(2), { pauseMs })).toBe(3)
  expect(errors).toEqual(['attempt 1', 'attempt 2'])
})

it('throws the last error when the policy gives up', async () => {
  const nextPause = [0, undefined]
  await expect(retry(failing(9), { pauseMs: () => nextPause.shift() })).rejects.toThrow('attempt 2')
})

it('throws what the policy throws', async () => {
  const pauseMs = () => {
    throw new TypeError('given up')
  }
  await expect(retry(failing(9), { pauseMs })).rejects.toThrow(new TypeError('given up'))
})

it('throws the reason of the signal, during a pause and after a failed attempt', async () => {
  const stop = new AbortController()
  const asked: unknown[] = []
  const paused = retry(failing(9), { signal: stop.signal, pauseMs: (error) => (asked.push(error), 1e9) })
  await new Promise((resolve) => setImmediate(resolve))
  stop.abort(new Error('stopped'))
  await expect(paused).rejects.toThrow('stopped')
  expect(asked).toHaveLength(1)
  const attempted = retry(failing(9), { signal: stop.signal, pauseMs: (error) => (asked.push(error), 0) })
  await expect(attempted).rejects.toThrow('stopped')
  expect(asked).toHaveLength(1)
})

it('pauses double up to the longest one, for each call by itself', () => {
  const [next, other] = [doubling(100, 500), doubling(1, 1)]
  expect([next(), next(), next(), next(), next()]).toEqual([100, 200, 400, 500, 500])
  expect([other(), other()]).toEqual([1, 1])
})

it('repeats after success and after failure, until the signal', async () => {
  const stop = new AbortController()
  const failures: string[] = []
  let acted = 0
  const act = async () => {
    acted++
    if (acted === 2) throw new Error('second')
    if (acted === 4) stop.abort()
  }
  const failed = (error: unknown) => void failures.push((error as Error).message)
  await repeat(act, { signal: stop.signal, everyMs: 0, failed })
  expect({ acted, failures }).toEqual({ acted: 4, failures: ['second'] })
})

it('reports no failure after the signal, and does not begin after it', async () => {
  const stop = new AbortController()
  const failures: unknown[] = []
  let acted = 0
  const act = async () => {
    acted++
    stop.abort()
    throw new Error('stopped')
  }
  const policy = { signal: stop.signal, everyMs: 1e9, failed: (error: unknown) => void failures.push(error) }
  await repeat(act, policy)
  await repeat(act, policy)
  expect({ acted, failures }).toEqual({ acted: 1, failures: [] })
})
