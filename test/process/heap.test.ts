import { spawn } from 'node:child_process'
import { on, once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { isWorthCollecting } from '../../cli/process/runtime.ts'
import { until } from '../support/wait.ts'

const MIB = 2 ** 20

describe('the memory of a burst', () => {
  it.each(['idle', 'at once'])('is given back once the process idles, where it begins %s', async (begins) => {
    const script = new URL('./heap-process.ts', import.meta.url).pathname
    const child = spawn(process.execPath, [script, begins], { stdio: ['pipe', 'pipe', 'inherit'] })
    const said = on(child.stdout, 'data')
    const next = async () => Number(String((await said.next()).value))
    const full = await next()
    const isSmall = async () => {
      child.stdin.write('?')
      return (await next()) < full / 2
    }
    await until(isSmall, { leastMs: 50, what: `less than half of ${full} MiB is resident` })
    child.stdin.end()
    await once(child, 'close')
  })

  it.each([
    { now: 400, before: 130, worth: true },
    { now: 190, before: 130, worth: false },
    { now: 1100, before: 1000, worth: false },
    { now: 1300, before: 1000, worth: true },
  ])('is worth a pause where it is much: $now MiB, $before before: $worth', ({ now, before, worth }) => {
    expect(isWorthCollecting({ now: now * MIB, before: before * MIB })).toBe(worth)
  })
})
