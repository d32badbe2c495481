import { CloudEvent, trigger } from 'fairlead/events'
import * as fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { acceptTriggers, type EventStore, openEventStore, type TakeTrigger } from '#events'
import { objectOfCause } from '#inspect/keys'
import { encodeHeaders, type JetStream } from '#nats'
import { type Lease, openQueue, type WorkQueue } from '#queue'
import type { Reconciler, RefusedReconciler } from '../../bridge/reconcilers.ts'
import { createTriggers, type TriggerDeps } from '../../bridge/triggers.ts'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'
import { silent as log } from '../support/silent.ts'
import { until } from '../support/wait.ts'
import { configMaps, reconciler } from './objects.ts'
import { map } from './scripted-api.ts'

const paths = { name: 'data.order', namespace: 'subject' }
const RECONCILERS: Record<string, Reconciler | RefusedReconciler> = {
  order: reconciler('order', { for: configMaps, trigger: paths }),
  'my.own': reconciler('my.own', { for: configMaps }),
  placed: reconciler('placed', { for: { ...configMaps, namespaces: ['shop'] } }),
  broken: { name: 'broken', reason: 'InvalidSpec', message: 'spec.for is missing', object: map('broken', 1) },
}

let nats: Awaited<ReturnType<typeof startTestNats>>
let program: JetStream

beforeAll(async () => {
  nats = await startTestNats()
  program = await connectTo(nats.url, 'program')
})
afterAll(async () => {
  await program?.close()
  await nats?.stop()
})

interface Accepting {
  events: EventStore
  queue: WorkQueue
  stop(): Promise<void>
}

/** What a bridge does about triggers, on streams of its own: EVENTS has the ConfigMaps shop/a and shop/b. */
async function accepting(
  prefix: string,
  { find = (name) => RECONCILERS[name], isListed = () => true, queue: through }: Partial<TriggerDeps> = {},
): Promise<Accepting & AsyncDisposable> {
  const js = await connectTo(nats.url, 'bridge')
  const events = await openEventStore(js, { prefix, cluster: 'test', log })
  const queue = await openQueue(js, { prefix, log })
  for (const name of Object.keys(RECONCILERS)) await queue.declare(name)
  for (const name of ['a', 'b']) await events.put(configMaps, 'added', map(name, 1, { namespace: 'shop' }))
  const end = new AbortController()
  const take = createTriggers({ events, queue: through ?? queue, find, isListed })
  const accepted = acceptTriggers(js, { root: events.root, log, signal: end.signal }, take)
  await js.flush()
  const stop = async () => {
    end.abort()
    await accepted
    await js.close()
  }
  return { events, queue, stop, [Symbol.asyncDispose]: stop }
}

const ofA = (prefix: string) => ({ prefix, reconciler: 'order', namespace: 'shop', name: 'a' })
const keyA = { reconciler: 'order', key: 'shop.a' }

describe('a trigger', () => {
  it('queues its key with its cause, once, and the first cause stays', async () => {
    await using bridge = await accepting('once')
    await trigger(program.nc, { ...ofA('once'), cause: 'invoice 12 is paid' })
    expect(await trigger(program.nc, { ...ofA('once'), cause: 'invoice 13 is paid' })).toBe('coalesced')
    expect(await bridge.queue.find(keyA)).toMatchObject([{ state: 'queued', causes: ['trigger: invoice 12 is paid'] }])
    await trigger(program.nc, { ...ofA('once'), reconciler: 'my.own' })
    expect(await bridge.queue.find({ ...keyA, reconciler: 'my.own' })).toMatchObject([{ causes: ['trigger'] }])
  })

  it('during a run causes a run after it', async () => {
    await using bridge = await accepting('during')
    const runs: string[][] = []
    const handler = async ({ causes }: { causes: readonly string[] }) => {
      runs.push([...causes])
      if (runs.length === 1) await trigger(program.nc, { ...ofA('during'), cause: 'second' })
      return { kind: 'done' as const }
    }
    const worker = bridge.queue.serve({ reconciler: 'order', slots: 1, handler })
    await trigger(program.nc, { ...ofA('during'), cause: 'first' })
    await until(() => runs.length === 2)
    expect(runs[0]).toEqual(['trigger: first'])
    await worker.drain(1000)
  })

  it.each([
    ['first', undefined],
    ['after a change whose token the run may still take', 'modified ConfigMap.v1 shop/a@2'],
  ])('during a run that reads again causes another run, as nothing may have changed (%s)', async (how, change) => {
    const prefix = `again-${how.length}`
    const queued: string[] = []
    const through: TriggerDeps['queue'] = {
      enqueue: async (...given) => {
        const result = await queue.enqueue(...given)
        queued.push(result)
        return result
      },
      find: (of) => queue.find(of),
    }
    await using bridge = await accepting(prefix, { queue: through })
    const { queue } = bridge
    const calls: string[] = []
    let asked: Promise<unknown> | undefined
    // As a run does: it calls the function once, and in a further pass only if something has changed.
    const handler = async (lease: Lease) => {
      await lease.beginPass()
      calls.push(`call ${lease.causes.join()}`)
      if (asked === undefined) {
        const isNoted = async () =>
          lease.stale.aborted || (await queue.find(keyA)).some((entry) => entry.state === 'running' && entry.dirty)
        if (change !== undefined) {
          await queue.enqueue('order', 'shop.a', { cause: change })
          await until(isNoted, { what: 'the change has reached the run' })
        }
        asked = trigger(program.nc, { ...ofA(prefix), cause: 'second' })
        await until(() => queued.length > 0, { what: 'the bridge has tried to queue the key' })
        await until(isNoted, { what: 'a token has reached the run' })
        while (lease.stale.aborted) await lease.beginPass()
      }
      return { kind: 'done' as const }
    }
    const worker = queue.serve({ reconciler: 'order', slots: 4, handler })
    await queue.enqueue('order', 'shop.a', { cause: 'first' })
    await until(() => calls.slice(1).some((call) => call.includes('trigger: second')), {
      what: 'the function is called for it',
    })
    await asked
    expect(queued[0]).toBe(change === undefined ? 'queued' : 'coalesced')
    await worker.drain(1000)
  })

  it('is not answered before its key is stored, so one that a dying bridge took is asked of another one', async () => {
    const taken = Promise.withResolvers<void>()
    const enqueue = () => {
      taken.resolve()
      return new Promise<never>(() => {})
    }
    const dying = await accepting('dying', { queue: { enqueue } as unknown as WorkQueue })
    const answer = trigger(program.nc, ofA('dying'))
    await taken.promise
    await dying.stop()
    await using other = await accepting('dying')
    await answer
    expect(await other.queue.find(keyA)).toHaveLength(1)
  })

  it('waits for a bridge, until its signal', async () => {
    const waits = trigger(program.nc, ofA('later'))
    const given = trigger(program.nc, { ...ofA('never'), signal: AbortSignal.timeout(300) })
    await expect(given).rejects.toThrow(/aborted due to timeout/)
    await using _ = await accepting('later')
    await waits
  })

  it('waits while the bridge does not know the Reconciler or its objects yet', async () => {
    const is = { known: false, listed: false }
    const asked = { find: 0, isListed: 0 }
    await using bridge = await accepting('starting', {
      find: (name) => (asked.find++, is.known ? RECONCILERS[name] : 'starting'),
      isListed: () => (asked.isListed++, is.listed),
    })
    const early = trigger(program.nc, ofA('starting'))
    await until(() => asked.find > 0)
    is.known = true
    await early
    const unlisted = trigger(program.nc, { ...ofA('starting'), name: 'c' })
    await until(() => asked.isListed > 0)
    await bridge.events.put(configMaps, 'added', map('c', 1, { namespace: 'shop' }))
    await unlisted
    is.listed = true
    await expect(trigger(program.nc, { ...ofA('starting'), name: 'd' })).rejects.toThrow('there is no ConfigMap shop/d')
  })

  it.each([
    [{ name: 'c' }, 'there is no ConfigMap shop/c'],
    [{ namespace: undefined }, 'there is no ConfigMap a'],
    [{ reconciler: 'none' }, 'there is no Reconciler none'],
    [{ reconciler: 'broken' }, 'the Reconciler broken is not served: spec.for is missing'],
  ])('%j is refused, and queues nothing', async (more, message) => {
    await using bridge = await accepting('refused')
    await expect(trigger(program.nc, { ...ofA('refused'), ...more })).rejects.toThrow(message)
    expect(await bridge.queue.depth('order')).toMatchObject({ queued: 0 })
  })

  it('for a namespace that its Reconciler is not for is refused, although that is never listed', async () => {
    await using _ = await accepting('places', { isListed: () => false })
    const asked = trigger(program.nc, { ...ofA('places'), reconciler: 'placed', namespace: 'bar' })
    await expect(asked).rejects.toThrow('the Reconciler placed is not for the namespace bar')
  })

  it('of more than 64 KiB is refused, whatever part of it is large', async () => {
    await using _ = await accepting('large')
    const headers = encodeHeaders({ 'ce-specversion': '1.0', 'ce-x': 'x'.repeat(70_000) })
    const answer = await program.nc.request('large.trigger.order', '', { timeout: 5000, headers })
    expect(answer.json()).toMatchObject({ refused: expect.stringContaining('more than 65536') })
    const cause = 'x'.repeat(70_000)
    await expect(trigger(program.nc, { ...ofA('large'), cause })).rejects.toThrow('more than 65536')
  })

  it('has a cause that looks like no other, whatever its text is', async () => {
    await using bridge = await accepting('causes')
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.string({ unit: 'binary' }),
          fc.constantFrom('modified ConfigMap shop/a@1', '\0', ' \n', '\u202egpj.exe', '\u2066a\u2069', 'a\u200fb'),
        ),
        async (text) => {
          const cause = '💰'.repeat(99) + text
          for (const given of [text, cause]) {
            await trigger(program.nc, { ...ofA('causes'), cause: given })
            const [entry] = await bridge.queue.find(keyA)
            const [shown = ''] = entry?.causes ?? []
            expect(shown).toMatch(/^trigger(: .{1,200})?$/su)
            expect(shown).not.toMatch(/[\p{Cc}\p{Bidi_Control}]/u)
            expect(objectOfCause(shown)).toBeUndefined()
            await bridge.queue.purge(keyA)
          }
        },
      ),
      { numRuns: 30 },
    )
  })
})

describe('a CloudEvent of another system', () => {
  const event = (more: object = {}) =>
    new CloudEvent<unknown>({
      id: '7',
      source: '/billing',
      type: 'paid',
      subject: 'shop',
      data: { order: 'a' },
      ...more,
    })
  const of = { prefix: 'event', reconciler: 'order' }

  it('queues the key that the declared paths name', async () => {
    await using bridge = await accepting('event')
    await trigger(program.nc, { ...of, event: event() })
    expect(await bridge.queue.find(keyA)).toMatchObject([{ causes: ['trigger: paid 7 of /billing'] }])
  })

  it.each([
    [{ ...of, event: event({ data: { order: 7 } }) }, 'the event 7 has no text, or several, at data.order'],
    [{ ...of, event: event({ subject: undefined }) }, 'at subject, where the Reconciler order looks'],
    [{ ...of, event: event(), reconciler: 'my.own' }, 'the Reconciler my.own takes no CloudEvents: declare trigger'],
    [{ ...of, event: event({ data: { order: 'c' } }) }, 'there is no ConfigMap shop/c'],
    [{ ...of, event: event({ data: { order: 'a\ud800' } }) }, 'the event 7 has no text, or several, at data.order'],
  ])('that names no object is refused (%#)', async (options, message) => {
    await using _ = await accepting('event')
    await expect(trigger(program.nc, options)).rejects.toThrow(message)
  })

  it('has to be one', async () => {
    await using _ = await accepting('event')
    const answer = await program.nc.request('event.trigger.order', 'x', { timeout: 60_000 })
    expect(answer.json()).toMatchObject({ refused: expect.stringContaining('is not a CloudEvent') })
  })
})

it('a Reconciler has its limit, and the others keep theirs', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  try {
    const events = { observe: async () => ({ primary: undefined }) } as unknown as EventStore
    const queue = {} as WorkQueue
    const take = createTriggers({ events, queue, find: (name) => RECONCILERS[name], isListed: () => true })
    const ask = (reconciler: string): ReturnType<TakeTrigger> =>
      take({ reconciler, of: { namespace: 'shop', name: 'c' }, cause: 'x' })
    for (let count = 0; count < 1000; count++) expect(await ask('order')).toHaveProperty('refused')
    expect(await ask('order')).toEqual({ againMs: 10 })
    expect(await ask('my.own')).toHaveProperty('refused')
    vi.advanceTimersByTime(10)
    expect(await ask('order')).toHaveProperty('refused')
  } finally {
    vi.useRealTimers()
  }
})
