import { once } from 'node:events'
import { beforeAll, expect, it } from 'vitest'
import { connectJetStream, Watermark } from '#nats'
import { useJetStream } from '../support/jetstream.ts'

const KEPT = { stream: 'TIDE', mark: 'tide._' }
const { nats, js } = useJetStream()

beforeAll(async () => {
  const config = { subjects: ['tide.>'], max_msgs_per_subject: 1, allow_msg_ttl: true }
  await js().admin.streams.add({ name: KEPT.stream, ...config })
})

const sequenceIn = (mark: string): number => Number(mark.split('.')[1])

it('a mark is behind everything that was confirmed before it was asked for', async () => {
  const watermark = new Watermark(js(), KEPT)
  const first = watermark.raise()
  const { sequence } = await js().publish('tide.a', '', {})
  expect(sequenceIn(await watermark.raise())).toBeGreaterThan(sequence)
  expect(await watermark.holds(await first)).toBe(true)
})

it('callers that ask while a mark is under way share the next one', async () => {
  const watermark = new Watermark(js(), KEPT)
  const [first, ...others] = await Promise.all([watermark.raise(), watermark.raise(), watermark.raise()])
  expect(new Set(others)).toHaveProperty('size', 1)
  expect(sequenceIn(others[0])).toBeGreaterThanOrEqual(sequenceIn(first))
})

/** Removes the latest messages, as after a restore of the stream. */
async function lose(mark: string): Promise<void> {
  await js().remove(KEPT.stream, sequenceIn(mark))
}

const lossOf = (watermark: Watermark) => new Promise<void>((resolve) => watermark.onLoss(resolve))

it('a lost mark stays lost, whatever its process marks later', async () => {
  const watermark = new Watermark(js(), KEPT)
  const { lostSignal } = watermark
  const told = lossOf(watermark)
  const lost = await watermark.raise()
  await lose(lost)
  expect(await watermark.holds(lost)).toBe(false)
  const next = await watermark.raise()
  await told
  expect(lostSignal.aborted).toBe(true)
  expect(await watermark.holds(lost)).toBe(false)
  expect(await watermark.holds(next)).toBe(true)
})

it('a mark that was stored but never answered is no loss', async () => {
  const watermark = new Watermark(js(), KEPT)
  const { lostSignal } = watermark
  const [process] = (await watermark.raise()).split('.')
  await js().publish(`${KEPT.mark}.${process}`, '', {})
  expect(await watermark.holds(await watermark.raise())).toBe(true)
  expect(lostSignal.aborted).toBe(false)
})

it('what was confirmed may be lost when the connection drops, and the marks stay', async () => {
  await using mine = await connectJetStream({ servers: nats().url, name: 'mine' })
  const watermark = new Watermark(mine, KEPT)
  const told = lossOf(watermark)
  const mark = await watermark.raise()
  const { lostSignal } = watermark
  const dropped = once(lostSignal, 'abort')
  await nats().restart()
  await dropped
  await told
  expect(await watermark.holds(mark)).toBe(true)
})
