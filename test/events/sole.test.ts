import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type EventStore, openEventStore } from '#events'
import type { JetStream } from '#nats'
import { silent } from '../support/silent.ts'
import { ATS, object, type openStore, ownedBy, PODS, useStores } from './objects.ts'

const { fresh, open: openOn } = useStores()

type Store = Awaited<ReturnType<typeof openStore>>

/** Processes of one installation, and what they ask the server for, without the installation's prefix. */
async function installation() {
  const { prefix } = fresh()
  const processes = new AsyncDisposableStack()
  const asked: string[] = []
  const open = async () => processes.use(await openOn({ prefix }))
  const first = await open()
  first.js.nc.subscribe(`$JS.API.DIRECT.GET.${first.stream}`, {
    callback: (_, request) => {
      const { multi_last: subjects = [] } = request.json<{ multi_last?: string[] }>()
      asked.push(...subjects.map((subject) => subject.slice(prefix.length + 1)))
    },
  })
  await first.js.flush()
  /** What a process that has just started asks for during a put. */
  const askedBy = async (put: (store: Store) => Promise<unknown>) => {
    const store = await open()
    await first.js.flush()
    asked.length = 0
    await put(store)
    await first.js.flush()
    return [...asked]
  }
  return { prefix, first, open, askedBy, [Symbol.asyncDispose]: () => processes.disposeAsync() }
}

const under = (owner: string) => `k8s._.v1.pods.ns.${owner}.p`
const put = (version: number, owner: string) => (store: Store) =>
  store.put(PODS, 'modified', object('p', version), ownedBy(owner))
const write = (version: number, owner: string) => (store: Store) =>
  store.put(PODS, 'modified', object('p', version), { ...ownedBy(owner), origin: ORIGIN })
/** A dispatcher names its run with each version that it stores. */
const ORIGIN = 'ats/ns.x/run'

describe('a writer that remembers nothing of an object reads', () => {
  it('one subject, as many owners as there are, where the object has had one owner', async () => {
    await using made = await installation()
    await made.first.put(PODS, 'added', object('p', 1), ownedBy('x'))
    for (const version of [2, 3, 3]) expect(await made.askedBy(put(version, 'x'))).toEqual([under('ats~x')])
  })

  it('one subject after another writer was quicker', async () => {
    await using made = await installation()
    const slow = await made.open()
    for (const store of [made.first, slow]) await put(1, 'x')(store)
    await put(2, 'x')(made.first)
    expect(await made.askedBy(() => put(2, 'x')(slow))).toEqual([under('ats~x')])
  })

  it('all subjects of the object, where it has left an owner, is deleted, or is new under this owner', async () => {
    await using made = await installation()
    await made.first.put(PODS, 'added', object('p', 1), ownedBy('x'))
    expect(await made.askedBy(put(2, 'y'))).toEqual([under('ats~y'), under('*')])
    expect(await made.askedBy(put(3, 'y'))).toEqual([under('ats~y'), under('*')])
    await made.first.put(PODS, 'deleted', object('p', 4), ownedBy('y'))
    expect(await made.askedBy(put(5, 'y'))).toEqual([under('ats~y'), under('*')])
    const { owned } = await made.first.observe({ primary: { ref: ATS, namespace: 'ns', name: 'x' }, owned: [PODS] })
    expect(owned).toEqual([[]])
  })

  it('all subjects once, where an earlier version of Fairlead has stored the object', async () => {
    await using made = await installation()
    await made.first.put(PODS, 'added', object('p', 1), ownedBy('x'))
    const subject = `${made.prefix}.${under('ats~x')}`
    const message = await made.first.js.lastOf(made.first.stream, subject)
    const headers = Object.entries(message?.headers ?? {}).filter(([header]) => header.startsWith('ce-'))
    await made.first.js.publish(subject, message?.data ?? new Uint8Array(), Object.fromEntries(headers))
    expect(await made.askedBy(put(2, 'x'))).toEqual([under('ats~x'), under('*')])
    expect(await made.askedBy(put(3, 'x'))).toEqual([under('ats~x')])
  })
})

/** Returns the owners under which EVENTS has a copy of the object. */
async function ownersOf(store: EventStore, name = 'p'): Promise<string[]> {
  const found: string[] = []
  for await (const { key, owner, deleted } of store.identities(PODS))
    if (key.name === name && !deleted) found.push(owner?.name ?? '')
  return found.sort()
}

class Dead extends Error {}

/** Processes on one connection, one after the other. Each remembers nothing, and may die before one of its publishes. */
async function processesOn({ js }: Store, prefix: string) {
  let left = Number.POSITIVE_INFINITY
  const mortal = new Proxy(js, {
    get(target, name) {
      if (name === 'publish')
        return async (...args: Parameters<JetStream['publish']>) => {
          if (left-- <= 0) throw new Dead()
          return target.publish(...args)
        }
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
  const store = await openEventStore(mortal, { prefix, cluster: 'test', log: silent })
  /** The next process, which dies before it has made one publish more than these. */
  return (publishes = Number.POSITIVE_INFINITY): EventStore => {
    left = publishes
    store.forget(PODS)
    return store
  }
}

async function untilDeath(act: () => Promise<unknown>): Promise<void> {
  await act().catch((error: unknown) => {
    if (!(error instanceof Dead)) throw error
  })
}

describe('an object is under one owner', () => {
  it('after a writer died in a move, and the object was moved back by one that remembers nothing, when a watch shows the move', async () => {
    await using made = await installation()
    await made.first.put(PODS, 'added', object('p', 1), ownedBy('x'))
    const dying = (await processesOn(made.first, made.prefix))(1)
    await untilDeath(() => dying.put(PODS, 'modified', object('p', 2), ownedBy('y')))
    await put(3, 'x')(await made.open())
    expect(await ownersOf(made.first)).toEqual(['x', 'y'])
    await put(2, 'y')(await made.open())
    expect(await ownersOf(made.first)).toEqual(['x'])
  })

  it('where a dispatcher has stored its move before the bridge has stored the version before', async () => {
    await using made = await installation()
    const bridge = await made.open()
    await write(2, 'y')(made.first)
    await bridge.put(PODS, 'added', object('p', 1), ownedBy('x'))
    expect(await ownersOf(bridge)).toEqual(['x', 'y'])
    await put(2, 'y')(bridge)
    expect(await ownersOf(bridge)).toEqual(['y'])
  })

  it.each([[[2]], [[2, 3]], [[2, 3, 4]]])(
    'also where the bridge has died after the version before, and the next one goes on: the dispatcher has stored %j',
    async (versions) => {
      await using made = await installation()
      for (const version of versions) await write(version, 'y')(await made.open())
      await (await made.open()).put(PODS, 'added', object('p', 1), ownedBy('x'))
      await put(2, 'y')(await made.open())
      expect(await ownersOf(made.first)).toEqual(['y'])
    },
  )

  it('whichever processes die during which writes, when a bridge has brought every version', async () => {
    await using made = await installation()
    const version = fc.record({ owner: fc.constantFrom('x', 'y', 'z'), ends: fc.boolean() })
    const publishes = fc.constantFrom(0, 1, 2, Number.POSITIVE_INFINITY)
    const act = fc.oneof(
      // A dispatcher stores what it has written, before the bridge stores this version or the ones before.
      fc.record({ by: fc.constant('dispatcher' as const), ahead: fc.constantFrom(1, 2, 3), publishes }),
      fc.record({ by: fc.constant('bridge' as const), publishes }),
      // Its cursor may be behind what it has stored.
      fc.record({ by: fc.constant('next bridge' as const), back: fc.constantFrom(0, 1) }),
    )
    const history = fc.array(version, { minLength: 1, maxLength: 5 })
    const [nextBridge, nextDispatcher] = [
      await processesOn(made.first, made.prefix),
      await processesOn(made.first, made.prefix),
    ]
    let run = 0
    await fc.assert(
      fc.asyncProperty(history, fc.array(act, { maxLength: 12 }), async (versions, acts) => {
        const name = `p${run++}`
        const put = async (store: EventStore, at: number, origin?: string) => {
          const { owner, ends } = versions[at - 1]!
          const isNew = at === 1 || versions[at - 2]!.ends
          const verb = ends ? 'deleted' : isNew ? 'added' : 'modified'
          await untilDeath(() => store.put(PODS, verb, object(name, at), { ...ownedBy(owner), origin }))
        }
        let bridge = nextBridge()
        let position = 0
        for (const one of acts) {
          if (one.by === 'next bridge') {
            position = Math.max(0, position - one.back)
            bridge = nextBridge()
          } else if (one.by === 'dispatcher') {
            await put(nextDispatcher(one.publishes), Math.min(position + one.ahead, versions.length), ORIGIN)
          } else if (position < versions.length) {
            if (one.publishes === Number.POSITIVE_INFINITY) await put(bridge, ++position)
            else {
              await put(nextBridge(one.publishes), position + 1)
              bridge = nextBridge()
            }
          }
        }
        while (position < versions.length) await put(bridge, ++position)
        const last = versions.at(-1)!
        expect(await ownersOf(made.first, name)).toEqual(last.ends ? [] : [last.owner])
      }),
      {
        numRuns: 50,
        examples: [
          // What a bridge has stored is the deletion before the object that the dispatcher knows.
          [
            [
              { owner: 'y', ends: true },
              { owner: 'x', ends: false },
              { owner: 'y', ends: false },
            ],
            [
              { by: 'bridge', publishes: 2 },
              { by: 'dispatcher', ahead: 3, publishes: Number.POSITIVE_INFINITY },
              { by: 'dispatcher', ahead: 2, publishes: 2 },
            ],
          ],
        ],
      },
    )
  })
})
