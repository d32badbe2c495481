import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject, RunInput } from '#contracts'
import { keyOf, openEventStore } from '#events'
import { resourcePath } from '#kube'
import { silent, startFixture, until, WIDGETS } from './fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>

beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

const sizeOf = ({ object }: Pick<RunInput, 'object'>) => (object as KubeObject & { spec: { size?: number } }).spec.size

it('a run of a timer does not decide on what EVENTS has overtaken, though the token of that change waits in a full low lane', async () => {
  const { stream } = fixture.events
  // The bridge, in another process.
  const bridge = await openEventStore(fixture.js, {
    prefix: stream.slice(0, -'_EVENTS'.length),
    cluster: 'test',
    log: silent,
  })
  const name = 'views-overtaken'
  const found = await fixture.scene(name, { spec: { concurrency: 4 } })
  const others = Array.from({ length: 12 }, (_, index) => `other-${index}`)
  for (const other of others) {
    await found.widget(other, () => ({}))
    await found.ended(other)
  }
  const end = Promise.withResolvers<void>()
  let held = 0
  for (const other of others)
    found.behave(other, async () => {
      held++
      await end.promise
      return {}
    })
  for (const other of others) await found.queue.enqueue(name, keyOf(name, other), { lane: 'low' })
  await until(() => held === 3)
  const sizes: (number | undefined)[] = []
  await found.widget('w', (input) => {
    sizes.push(sizeOf(input))
    return { requeueAfterSeconds: 2 }
  })
  const path = resourcePath(WIDGETS, name, 'w')
  const waiting = async () => (await found.queue.depth(name)).waiting === 1
  let size = 0
  const isOvertaken = async () => {
    const runs = sizes.length
    if (!(await waiting())) return false
    await bridge.put(WIDGETS, 'modified', await fixture.kube.patch(path, { spec: { size: ++size } }, 'merge'))
    await found.queue.enqueue(name, keyOf(name, 'w'), { lane: 'low' })
    return sizes.length === runs && (await waiting())
  }
  await until(isOvertaken)
  const runs = sizes.length
  await until(() => sizes.length > runs)
  expect(sizes[runs]).toBe(size)
  // The token is still there.
  expect((await found.queue.depth(name)).queued).toBe(others.length - 3 + 1)
  end.resolve()
  await found.stop()
})
