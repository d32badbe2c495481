import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { headers, type Msg } from 'nats'
import { beforeAll, describe, expect, it } from 'vitest'
import { openEventStore } from '#events'
import {
  connectJetStream,
  DeclarationMismatchError,
  type Delivery,
  declareConsumer,
  declareStream,
  incarnationOf,
  type JetStream,
  Puller,
  UnknownOutcomeError,
  Watermark,
} from '#nats'
import { openQueue } from '#queue'
import { isFromLeader } from '../../streams/nats/client.ts'
import { parseHeaders, plainHeaders, statusOf } from '../../streams/nats/messages.ts'
import { Outbox, RequestMux } from '../../streams/nats/mux.ts'
import { useJetStream } from '../support/jetstream.ts'
import { startLossyProxy } from '../support/lossy-proxy.ts'
import { silent as log } from '../support/silent.ts'
import { until } from '../support/wait.ts'

const { nats, js } = useJetStream()

async function received(names: Record<string, string[]>, body = 'body'): Promise<Msg> {
  const { nc } = js()
  const sent = headers()
  for (const [name, values] of Object.entries(names)) for (const value of values) sent.append(name, value)
  const subscription = nc.subscribe('headers', { max: 1 })
  nc.publish('headers', body, { headers: sent })
  for await (const message of subscription) return message
  throw new Error('nothing was received')
}

describe('the headers of a received message', () => {
  it('are what the map of the client says, and of a repeated name the first value', async () => {
    const message = await received({
      'ce-id': ['1'],
      'Nats-TTL': [' 5s '],
      repeated: ['one', 'two'],
      empty: [''],
      accent: ['é:x'],
    })
    expect(plainHeaders(message)).toEqual({ 'ce-id': '1', 'Nats-TTL': '5s', repeated: 'one', empty: '', accent: 'é:x' })
    expect(plainHeaders({ headers: message.headers } as Msg)).toEqual(plainHeaders(message))
  })

  it('are read from its bytes, without that map, with the version of the client that is installed', async () => {
    const message = await received({ 'ce-id': ['1'] })
    Object.defineProperty(message, 'headers', { get: () => expect.unreachable() })
    expect(plainHeaders(message)).toEqual({ 'ce-id': '1' })
  })

  it('are none where it has none, or only a status', async () => {
    const { nc } = js()
    const subscription = nc.subscribe('plain', { max: 1 })
    nc.publish('plain', 'body')
    for await (const message of subscription) expect(plainHeaders(message)).toEqual({})
    expect(parseHeaders('NATS/1.0 404 No Messages\r\n\r\n')).toEqual({})
  })
})

describe('the status of a message without a body', () => {
  it('is read from its bytes, since the map of the client would take 6 KiB of each waiting message', async () => {
    const { nc } = js()
    const unanswered = nc.subscribe('unanswered', { max: 1 })
    nc.publish('nobody', '', { reply: 'unanswered' })
    const [refusal] = await Array.fromAsync(unanswered)
    const messages = [refusal!, await received({ 'ce-id': ['1'] }, ''), await received({}, ''), await received({})]
    for (const message of messages) Object.defineProperty(message, 'headers', { get: () => expect.unreachable() })
    expect(messages.map(statusOf)).toEqual([503, 0, 0, 0])
  })
})

describe('a request', () => {
  const TIMEOUT_MS = 5000

  /** Answers each request so many times, with pauses; the last answer is empty. */
  function answering(subject: string, answers: number, pauseMs: number): void {
    js().nc.subscribe(subject, {
      callback: (_, request) => void answer(request, answers, pauseMs),
    })
  }

  async function answer(request: Msg, answers: number, pauseMs: number): Promise<void> {
    for (let count = 0; count < answers; count++) {
      await sleep(pauseMs)
      request.respond(`answer ${count}`)
    }
    request.respond()
  }

  const mux = () => new RequestMux(js().nc, new Outbox(js().nc), js().newInbox())

  it('waits for many answers as long as each of them comes in time', async () => {
    answering('slow', 6, TIMEOUT_MS / 5)
    const answers = await mux().requestMany('slow', '', ({ data }) => data.length === 0, TIMEOUT_MS)
    expect(answers).toHaveLength(7)
  })

  it('gives up many answers when the next one does not come in time', async () => {
    answering('stuck', 2, TIMEOUT_MS)
    const asked = mux().requestMany('stuck', '', ({ data }) => data.length === 0, TIMEOUT_MS / 10)
    await expect(asked).rejects.toThrow('no answer on stuck in time')
  })
})

/** Its first answer about a stream comes when it is let through. */
function answeringLate(real: JetStream): { js: JetStream; letThrough: () => void } {
  const held = Promise.withResolvers<void>()
  let asked = 0
  const info = async (name: string) => {
    const isFirst = asked++ === 0
    const answer = await real.admin.streams.info(name)
    if (isFirst) await held.promise
    return answer
  }
  const late = Object.create(real, {
    admin: { value: { streams: { info } } },
    nc: { value: real.nc },
    onReconnect: { value: () => () => {} },
    lastOf: { value: real.lastOf.bind(real) },
  }) as JetStream
  return { js: late, letThrough: held.resolve }
}

it('a stream that grows while its life is asked for by two at once lives on', async () => {
  await js().admin.streams.add({ name: 'LIFE', subjects: ['life.>'] })
  const { js: late, letThrough } = answeringLate(js())
  const life = incarnationOf(late, [{ stream: 'LIFE', mark: 'life.mark' }], { creates: false })
  const first = life()
  await js().admin.streams.info('LIFE')
  await js().publish('life.a', 'text', {})
  const second = life()
  await js().admin.streams.info('LIFE')
  letThrough()
  expect(new Set([await first, await second, await life()])).toHaveProperty('size', 1)
})

describe('a watermark', () => {
  const KEPT = { stream: 'TIDE', mark: 'tide._' }

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
})

describe('a declaration', () => {
  it.each(['requests', 'answers'] as const)('what is declared is asked for again when %s are lost', async (lost) => {
    await using proxy = await startLossyProxy(nats().url)
    const js = await connectJetStream({ servers: proxy.url, name: 'test', timeoutMs: 500 })
    proxy.lose(lost)
    expect(await declareStream(js, { name: lost, subjects: [lost] })).toMatchObject({ name: lost, num_replicas: 1 })
    proxy.lose(lost)
    await declareConsumer(js, lost, { durable_name: 'c', ack_policy: 'explicit' })
    expect(await js.admin.consumers.info(lost, 'c')).toMatchObject({ name: 'c' })
    await js.close()
  })

  it('says that NATS does not answer, and about what', async () => {
    await using proxy = await startLossyProxy(nats().url)
    const js = await connectJetStream({ servers: proxy.url, name: 'test', timeoutMs: 100 })
    js.onReconnect(() => proxy.lose('requests'))
    proxy.lose('requests')
    const declared = declareStream(js, { name: 'X', subjects: ['x'] })
    await expect(declared).rejects.toThrow(UnknownOutcomeError)
    await expect(declared).rejects.toThrow('NATS does not answer about stream X')
    await js.close()
  })

  describe.each([
    { stream: 'EVENTS', open: (prefix: string) => openEventStore(js(), { prefix, cluster: 'test', log }) },
    { stream: 'WORK', open: (prefix: string) => openQueue(js(), { prefix, log }) },
  ])('what $stream has held longest would go without a word', ({ stream, open }) => {
    it.each([
      ['max_msgs', 1e6],
      ['max_bytes', 1e6],
      ['max_age', 3600e9],
    ])('by a limit: with %s it is refused', async (limit, value) => {
      const prefix = limit.replaceAll('_', '-')
      await open(prefix)
      await js().admin.streams.update(`${prefix}_${stream}`, { [limit]: value })
      const refused = open(prefix)
      await expect(refused).rejects.toThrow(DeclarationMismatchError)
      await expect(refused).rejects.toThrow(`stream ${prefix}_${stream} exists with ${limit} = ${value}`)
    })
  })
})

describe('a puller', () => {
  it('keeps every slot busy and never asks for more than there are', async () => {
    await declareStream(js(), { name: 'S', subjects: ['s.>'] })
    await declareConsumer(js(), 'S', { durable_name: 'c', ack_policy: 'explicit', ack_wait: 30e9 })
    const subjects = Array.from({ length: 300 }, (_, index) => `s.${index}`)
    for (const subject of subjects) await js().publish(subject, '', {})

    const slots = 7
    const seen: string[] = []
    let inHand = 0
    let most = 0
    const all = Promise.withResolvers<void>()
    const puller = new Puller(js(), { stream: 'S', consumer: 'c', free: () => slots - inHand, onMessage: work })

    function work(delivery: Delivery): void {
      most = Math.max(most, ++inHand)
      setTimeout(() => {
        delivery.ack()
        seen.push(delivery.subject)
        inHand--
        puller.poke()
        if (seen.length === subjects.length) all.resolve()
      })
    }

    await all.promise
    expect([seen.toSorted(), most]).toEqual([subjects.toSorted(), slots])
    await puller.drain()
  })

  it('asks for slots together, and not again for each that becomes free', async () => {
    await declareStream(js(), { name: 'U', subjects: ['u.>'] })
    await declareConsumer(js(), 'U', { durable_name: 'c', ack_policy: 'explicit', ack_wait: 30e9 })
    const asked: number[] = []
    js().nc.subscribe('$JS.API.CONSUMER.MSG.NEXT.U.c', {
      callback: (_, message) => void asked.push(message.json<{ batch: number }>().batch),
    })
    let seen = 0
    const onMessage = (delivery: Delivery) => {
      delivery.ack()
      seen++
      puller.poke()
    }
    const puller = new Puller(js(), { stream: 'U', consumer: 'c', free: () => 8, onMessage })
    for (let sent = 1; sent <= 40; sent++) {
      await js().publish('u.1', '', {})
      await until(() => expect(seen).toBe(sent))
    }
    await until(() => expect(asked).toEqual([8, ...Array.from({ length: 10 }, () => 4)]))
    await puller.drain()
  })

  it('that gives up its requests leaves a message that it gives back to others, and has it when it asks again', async () => {
    await declareStream(js(), { name: 'T', subjects: ['t.>'] })
    await declareConsumer(js(), 'T', { durable_name: 'c', ack_policy: 'explicit', ack_wait: 30e9 })
    const waiting = async () => (await js().admin.consumers.info('T', 'c')).num_waiting
    const seen: string[] = []
    let free = 5
    const full = new Puller(js(), {
      stream: 'T',
      consumer: 'c',
      free: () => free,
      onMessage(delivery) {
        seen.push('full')
        free = 0
        full.giveUp()
        delivery.nak()
      },
    })
    await until(async () => expect(await waiting()).toBe(1))
    const other = new Puller(js(), {
      stream: 'T',
      consumer: 'c',
      free: () => 1,
      onMessage(delivery) {
        seen.push('other')
        delivery.ack()
      },
    })
    await until(async () => expect(await waiting()).toBe(2))
    await js().publish('t.1', '', {})
    await until(() => expect(seen).toContain('other'))
    expect(seen).toEqual(['full', 'other'])
    expect(full.outstanding).toBe(0)
    await other.drain()
    free = 1
    full.poke()
    await js().publish('t.2', '', {})
    await until(() => expect(seen).toEqual(['full', 'other', 'full']))
    await full.drain()
  })
})

it.each([
  [true, 'a server without a cluster', undefined],
  [true, 'the leader, which lists the others', { leader: 'n1', replicas: [{ name: 'n2' }, { name: 'n3' }] }],
  [true, 'the only replica in a cluster', { leader: 'n1' }],
  [false, 'a replica that knows no leader', { leader: '', replicas: [{ name: 'n1' }, { name: 'n2' }] }],
  [false, 'one that has just heard of it', { leader: 'n2', replicas: [{ name: 'n2' }, { name: 'n3' }] }],
])('an answer about a stream counts (%s) from %s', (counts, _, cluster) => {
  expect(isFromLeader({ cluster })).toBe(counts)
})
