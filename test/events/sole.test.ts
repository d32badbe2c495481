import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestNats } from '../support/servers.ts'
import { ATS, object, openStore, ownedBy, PODS } from './objects.ts'

let nats: Awaited<ReturnType<typeof startTestNats>>
let next = 0
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats[Symbol.asyncDispose]())

type Store = Awaited<ReturnType<typeof openStore>>

/** Processes of one installation, and what they ask the server for, without the installation's prefix. */
async function installation() {
  const prefix = `s${next++}`
  const processes = new AsyncDisposableStack()
  const asked: string[] = []
  const open = async () => processes.use(await openStore(nats.url, { prefix }))
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
