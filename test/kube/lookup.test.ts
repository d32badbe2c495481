import type { LookupAddress } from 'node:dns'
import { createServer, get, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Lookups, sharedLookup } from '../../kube/lookup.ts'

const A: LookupAddress = { address: '10.0.0.1', family: 4 }
const B: LookupAddress = { address: '10.0.0.2', family: 4 }
const failure = (code: string) => Object.assign(new Error(code), { code })

/** Look-ups that end when the test says so. */
function asked() {
  const open: { name: string; answer: (found: LookupAddress[] | Error) => void }[] = []
  const lookups = new Lookups(
    (name) =>
      new Promise((resolve, reject) => {
        open.push({ name, answer: (found) => (found instanceof Error ? reject(found) : resolve(found)) })
      }),
  )
  /** A name that has this address. */
  const known = async (name: string, address: LookupAddress) => {
    const first = lookups.addressesOf(name)
    open.pop()?.answer([address])
    expect(await first).toEqual([address])
  }
  return { lookups, open, known }
}

describe('look-ups of names', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  it('are shared by all connections to one name, so that a dead one takes one turn of the process', async () => {
    const { lookups, open } = asked()
    const all = Array.from({ length: 50 }, () => lookups.addressesOf('dead'))
    expect(open.map(({ name }) => name)).toEqual(['dead'])
    open[0]?.answer(failure('EAI_AGAIN'))
    for (const one of all) await expect(one).rejects.toThrow('EAI_AGAIN')
    void lookups.addressesOf('dead').catch(() => undefined)
    expect(open).toHaveLength(2)
  })

  it('do not hold up a name that had an address: it has it again after a second', async () => {
    const { lookups, known } = asked()
    await known('well', A)
    let found: LookupAddress[] | undefined
    void lookups.addressesOf('well').then((addresses) => (found = addresses))
    await vi.advanceTimersByTimeAsync(999)
    expect(found).toBeUndefined()
    await vi.advanceTimersByTimeAsync(1)
    expect(found).toEqual([A])
  })

  it('give the new address as soon as it is known, also when it has come late', async () => {
    const { lookups, open, known } = asked()
    await known('moved', A)
    const late = lookups.addressesOf('moved')
    await vi.advanceTimersByTimeAsync(1000)
    expect(await late).toEqual([A])
    const next = lookups.addressesOf('moved')
    open.pop()?.answer([B])
    expect(await next).toEqual([B])
  })

  it('keep the address while no server of DNS answers, and drop it when the name is gone', async () => {
    const { lookups, open, known } = asked()
    await known('name', A)
    const unanswered = lookups.addressesOf('name')
    open.pop()?.answer(failure('EAI_AGAIN'))
    expect(await unanswered).toEqual([A])
    const gone = lookups.addressesOf('name')
    open.pop()?.answer(failure('ENOTFOUND'))
    await expect(gone).rejects.toThrow('ENOTFOUND')
  })
})

it('a connection is made by the shared look-up', async () => {
  const server = createServer((_incoming, outgoing) => void outgoing.writeHead(204, { connection: 'close' }).end())
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  for (const family of [undefined, 4]) {
    const code = await new Promise((resolve, reject) => {
      const answered = (answer: IncomingMessage) => resolve(answer.resume().statusCode)
      get({ host: 'localhost', port, family, lookup: sharedLookup }, answered).on('error', reject)
    })
    expect(code).toBe(204)
  }
  await new Promise((resolve) => server.close(resolve))
})
