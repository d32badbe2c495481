import { describe, expect, it } from 'vitest'
import {
  bearerToken,
  claimsOf,
  networkOf,
  originRefusal,
  TimedCache,
} from '../../../packages/console/access/cluster-access.ts'

const HOSTS = ['console.example.com']
const asked = (headers: Record<string, string>) => originRefusal({ headers }, HOSTS)

describe('a request comes in', () => {
  it.each([
    ['to a name of the console', { host: 'console.example.com' }],
    ['to a name in capitals', { host: 'Console.Example.com:8443' }],
    ['by kubectl port-forward', { host: 'localhost:39001' }],
    ['by kubectl port-forward, with an address', { host: '127.0.0.1:8090' }],
    ['by kubectl port-forward, with an address of IPv6', { host: '[::1]:8090' }],
    [
      'from its own page, behind a proxy that ends TLS',
      { host: 'console.example.com', origin: 'https://console.example.com' },
    ],
    ['from its own page', { host: 'localhost:8090', origin: 'http://localhost:8090' }],
    [
      'by a link on another page',
      { host: 'console.example.com', 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' },
    ],
  ])('%s', (_, headers) => {
    expect(asked(headers)).toBeUndefined()
  })
})

describe('a request is refused', () => {
  it.each([
    ['without a host', {}, /"" is not a host of this console: name it in FAIRLEAD_CONSOLE_HOSTS/],
    ['to a name that another DNS server gives', { host: 'evil.example.com' }, /"evil.example.com" is not a host/],
    ['to a name that only begins like it', { host: 'console.example.com.evil.example' }, /is not a host/],
    ['to an address of a pod', { host: '10.0.0.7:8080' }, /is not a host/],
    [
      'from the page of another host',
      { host: HOSTS[0]!, origin: 'https://evil.example.com' },
      /may not use this console/,
    ],
    ['from another page of this machine', { host: 'localhost:8090', origin: 'http://localhost:3000' }, /may not use/],
    [
      'from a page without an origin',
      { host: HOSTS[0]!, origin: 'null' },
      /the page of "null" may not use this console/,
    ],
    [
      'as an image on another page',
      { host: HOSTS[0]!, 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' },
      /another site/,
    ],
  ])('%s', (_, headers, message) => {
    expect(asked(headers as Record<string, string>)).toEqual({ status: 403, message: expect.stringMatching(message) })
  })
})

describe('a bearer token', () => {
  it('is what stands after Bearer, and nothing else', () => {
    expect(bearerToken('Bearer abc.d-e_f')).toBe('abc.d-e_f')
    expect(bearerToken('bearer  abc ')).toBe('abc')
    for (const header of [undefined, '', 'Bearer', 'Bearer ', 'Basic YTpi', 'Bearer a b', 'Bearer a\u00e9'])
      expect(bearerToken(header)).toBeUndefined()
    expect(bearerToken(`Bearer ${'a'.repeat(20_000)}`)).toBeUndefined()
  })

  it('tells its end and its audiences, whatever it is', () => {
    const token = (payload: string) => `x.${Buffer.from(payload).toString('base64url')}.y`
    expect(claimsOf(token('{"exp": 2, "aud": "a"}'))).toEqual({ expiresAt: 2000, audiences: ['a'] })
    expect(claimsOf(token('{"aud": ["a", 1, "b"]}'))).toEqual({ audiences: ['a', 'b'] })
    for (const text of ['', 'a', 'a.b', token('1'), token('null'), token('{"exp": "2"}')])
      expect(claimsOf(text)).toEqual({})
  })
})

describe('a cache of seconds', () => {
  const opened = (entries = 10) => {
    const clock = { ms: 0 }
    return { clock, cache: new TimedCache<number>({ entries, ms: 1000, now: () => clock.ms }) }
  }

  it('does not outlive its seconds, which begin with the question', async () => {
    const { clock, cache } = opened()
    const { promise, resolve } = Promise.withResolvers<number>()
    const first = cache.get('a', () => promise)
    clock.ms = 900
    resolve(1)
    expect(await first).toBe(1)
    clock.ms = 999
    expect(await cache.get('a', async () => 2)).toBe(1)
    clock.ms = 1000
    expect(await cache.get('a', async () => 2)).toBe(2)
  })

  it('asks once for what many want at one time, and again after a failure', async () => {
    const { cache } = opened()
    let asks = 0
    const failing = async () => {
      asks++
      throw new Error('away')
    }
    const all = await Promise.allSettled([cache.get('a', failing), cache.get('a', failing)])
    expect([asks, ...all.map(({ status }) => status)]).toEqual([1, 'rejected', 'rejected'])
    expect(await cache.get('a', async () => 3)).toBe(3)
  })

  it('keeps no more than its entries', async () => {
    const { cache } = opened(2)
    for (const key of ['a', 'b', 'c']) await cache.get(key, async () => 1)
    expect(['a', 'b', 'c'].map((key) => cache.known(key) !== undefined)).toEqual([false, true, true])
  })
})

it.each([
  ['10.1.2.3', '10.1.2.3'],
  ['::ffff:10.1.2.3', '10.1.2.3'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
  ['2001:db8::6', '2001:db8:0:0'],
  ['fe80::1:2:3:4', 'fe80:0:0:0'],
  ['::1', '0:0:0:0'],
  ['', ''],
])('tokens of %s count with those of the network %s', (address, network) => {
  expect(networkOf(address)).toBe(network)
})
