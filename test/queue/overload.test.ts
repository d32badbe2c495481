import { expect, it } from 'vitest'
import { LeaseLostError } from '#queue'
import { DONE, FN, fence, freshPrefix, gate, keysNamed, statesOf, until, useTestNats } from './support.ts'

const SLOTS = 8
const { open } = useTestNats()

it('a worker that loses its leases holds half as many keys at once, and all again when runs end in time', async () => {
  const prefix = freshPrefix()
  let starved: Promise<void> | undefined
  await using test = await open(prefix, { onIo: () => starved })
  await using other = await open(prefix)
  const enqueue = (name: string) =>
    Promise.all(keysNamed(name, SLOTS).map((key) => other.queue.enqueue(FN, key, { lane: 'high' })))
  let held = 0
  let work: (lease: { hold(): void }) => Promise<void> = async (lease) =>
    until(() => expect(() => lease.hold()).toThrow(LeaseLostError))
  const fenced: string[] = []
  const worker = test.queue.serve({
    reconciler: FN,
    slots: SLOTS,
    handler: async (lease) => {
      held++
      try {
        await work(lease)
        return DONE
      } finally {
        held--
      }
    },
    onFinished: ({ key }, result) => void (result === 'fenced' && fenced.push(key)),
  })

  await enqueue('a')
  await until(() => expect(held).toBe(SLOTS))
  const { opened: fed, open: feed } = gate()
  starved = fed
  await until(() => expect(held).toBe(0))

  const first = gate()
  work = () => first.opened
  starved = undefined
  feed()
  await until(() => expect(fenced).toHaveLength(SLOTS))
  await until(() => expect(held).toBe(SLOTS / 2))
  await fence(other)
  expect(held).toBe(SLOTS / 2)
  first.open()
  await until(async () => expect(await statesOf(other.queue)).toEqual([]))

  const second = gate()
  work = () => second.opened
  await enqueue('b')
  await until(() => expect(held).toBe(SLOTS))
  second.open()
  await worker.drain(5000)
})
