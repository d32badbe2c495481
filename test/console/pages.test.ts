import type { IncomingMessage } from 'node:http'
import pino from 'pino'
import { describe, expect, it } from 'vitest'
import { type Access, type Action, localAccess } from '#console/access'
import type { RunRecord } from '#contracts'
import type { StoredRun, UsageRow } from '#events'
import type { Row } from '#inspect'
import { awayIn, type Data, type Unready } from '../../packages/console/data/data.ts'
import { html } from '../../packages/console/html.ts'
import { deadPage } from '../../packages/console/pages/dead.ts'
import { layout } from '../../packages/console/pages/layout.ts'
import { overview } from '../../packages/console/pages/overview.ts'
import { type Ask, askedOnce } from '../../packages/console/pages/page.ts'
import { queuePage, queueRows } from '../../packages/console/pages/queue.ts'
import { runPage, runRecord } from '../../packages/console/pages/run.ts'
import { runsPage } from '../../packages/console/pages/runs.ts'
import { usagePage } from '../../packages/console/pages/usage.ts'
import { routeOf } from '../../packages/console/server/server.ts'

const HOSTILE = '<img src=x onerror=alert(1)>"\'&\u001b[31m\u202e\u200f\u0000'
const KINDS = { group: 'example.com', version: 'v1', kind: 'Site', resource: 'sites' }
const RECONCILER = {
  apiVersion: 'fairlead.dev/v1alpha1',
  kind: 'Reconciler',
  metadata: { name: 'site' },
  spec: {
    for: KINDS,
    owns: [{ group: '', version: 'v1', kind: 'ConfigMap', resource: 'configmaps' }],
    invoke: { pull: {} },
  },
}
const POLICIES = { group: 'networking.k8s.io', version: 'v1', kind: 'NetworkPolicy', resource: 'networkpolicies' }
const row = (namespace: string, name: string, more: Partial<Row> = {}): Row => ({
  reconciler: 'site',
  namespace,
  name,
  state: 'queued',
  lane: 'high',
  since: '2026-11-23T00:00:00.000Z',
  attempt: 0,
  position: 1,
  positionInNamespace: 1,
  ...more,
})
const RECORD: RunRecord = {
  id: 'r',
  reconciler: 'site',
  namespace: 'shop',
  name: 'web',
  process: 'p',
  lane: 'high',
  attempt: 0,
  queuedAt: '2026-11-23T00:00:00.000Z',
  startedAt: '2026-11-23T00:00:01.000Z',
  endedAt: '2026-11-23T00:00:02.000Z',
  result: 'error',
  message: HOSTILE,
  requests: 1,
  laps: [
    {
      input: { object: null, owned: {}, related: {} } as never,
      outcome: { apply: [] },
      writes: [
        {
          verb: 'apply',
          kind: 'ConfigMap',
          name: 'c',
          differences: [{ path: '.data.key', after: 'confidential-value' }],
        },
      ],
    },
  ],
  leftOut: [],
}
const used = (name: string, namespace: string | undefined) => ({
  function: name,
  namespace,
  runs: 1,
  cpuMs: 5,
  requests: 2,
  writes: 1,
  storedBytes: 9,
})
const USAGE: UsageRow[] = [
  used('site', 'shop'),
  used('site', 'veiled'),
  used('(bridge)', 'hidden'),
  used('(platform)', undefined),
]
const DEPTH = { queued: 0, running: 0, waiting: 0, parked: 0 }
const RUN: StoredRun = { sequence: 7, bytes: 1, record: RECORD }

const allows =
  (...allowed: string[]) =>
  async ({ verb, resource, namespace = '*' }: Action): Promise<boolean> =>
    allowed.some((one) => [`${verb} ${resource}`, `${verb} ${resource} ${namespace}`].includes(one))

function ask(path: string, rows: Row[], may: Ask['may'] = async () => true, params: string[] = []): Ask {
  const data = {
    reconcilers: async () => [RECONCILER],
    queue: async () => ({ rows, isCut: false }),
    natsAway: async () => undefined,
    queues: async () => [...new Set(rows.map(({ reconciler }) => reconciler))],
    counts: async () => new Map([['site', { depth: DEPTH, oldest: undefined, isServed: true }]]),
    failingSince: async () => '2026-11-22T00:01:00.000Z',
    unready: async () => ({ objects: [], isCut: false }),
    recentRuns: async () => [RUN],
    runsOf: async () => [RUN],
    run: async () => RUN,
    letters: async () => [],
    usage: async () => USAGE,
  } as Partial<Data> as Data
  return {
    person: { name: HOSTILE, groups: [] },
    may,
    isUnchecked: () => false,
    data,
    abilities: { writes: true },
    url: new URL(path, 'http://console'),
    params,
    now: new Date('2026-11-23T00:01:00.000Z'),
    log: pino({ level: 'silent' }),
  }
}

const harmful = (text: string): string[] =>
  ['<img', '\u001b', '\u202e', '\u200f', '\u0000'].filter((part) => text.includes(part))
const document = async (given: Ask, page: Awaited<ReturnType<typeof queuePage>>) =>
  layout(given, page, { styles: ['/a.css'], script: '/a.js' })

describe('text of others', () => {
  it('is escaped in elements and attributes, and characters that turn or control text become visible', () => {
    const { text } = html`<p title="${HOSTILE}">${HOSTILE}</p>`
    expect(harmful(text)).toEqual([])
    expect(text).toContain('&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;\\u001b[31m\\u202e\\u200f\\u0000')
  })

  it('is harmless in pages: names, messages, the person, and what an address says', async () => {
    const path = `/queue?name=${encodeURIComponent(HOSTILE)}&reconciler=${encodeURIComponent(HOSTILE)}`
    const empty = ask(path, [])
    expect(harmful(await document(empty, await queuePage(empty)))).toEqual([])
    const full = ask('/queue', [row(HOSTILE, HOSTILE, { error: HOSTILE, state: 'parked', reason: 'Terminal' })])
    const page = await document(full, await queuePage(full))
    expect(harmful(page)).toEqual([])
    expect(page).toContain('onerror=alert(1)')
    expect(harmful((await queueRows(ask('/queue/rows?to=5', [row('a', HOSTILE)]))).rows.text)).toEqual([])
    const run = ask('/runs/7', [], async () => true, ['7'])
    expect(harmful(await document(run, await runPage(run)))).toEqual([])
  })

  it('has no way into scripts and styles: pages have none of their own', async () => {
    const full = ask('/queue', [row('a', 'b')])
    const page = await document(full, await queuePage(full))
    expect(page.match(/<script[^>]*>/g)).toEqual(['<script type="module" src="/a.js">'])
    expect(page).not.toMatch(/ style=| on[a-z]+="|<style/)
  })
})

describe('the overview', () => {
  const failing = (namespace: string, name: string, error: string, more: Partial<Row> = {}) =>
    row(namespace, name, { state: 'waiting', reason: 'Error', attempt: 2, error, ...more })
  const rowsOf = (text = ''): string[] =>
    [...text.matchAll(/<tr>(?!<th)(.*?)<\/tr>/gs)].map(([, cells = '']) =>
      cells
        .replaceAll(/<[^>]*>/g, ' ')
        .replaceAll(/\s+/g, ' ')
        .trim(),
    )
  /** The rows of the table of what fails, as text. */
  const failures = async (rows: Row[], may?: Ask['may']): Promise<string[]> =>
    rowsOf((await overview(ask('/', rows, may))).regions['failing']?.text)

  it('shows one cause once, however many objects of a namespace it has, the largest first, and since when', async () => {
    const rows = [
      failing('shop', 'alone', 'no disk'),
      ...['a-1', 'a-2', 'a-3'].map((name) => failing('team', name, `cannot apply ConfigMap team/${name}: quota`)),
      row('shop', 'queued'),
      failing('shop', 'by-hand', 'no disk', { state: 'parked', reason: 'Withdrawn' }),
    ]
    expect(await failures(rows)).toEqual([
      'failing 3 objects site team 24h0m cannot apply ConfigMap team/a-1: quota',
      'failing alone site shop 24h0m no disk',
    ])
  })

  it('shows a Reconciler that runs nothing before any object', async () => {
    const rows = [failing('shop', 'web', 'no disk'), row('shop', 'old', { reconciler: 'gone' })]
    expect((await failures(rows))[0]).toMatch(/^no Reconciler all gone all – The Reconciler was deleted/)
  })

  it('shows only objects that the person may list, and says when nothing fails', async () => {
    const rows = [failing('shop', 'web', 'no disk'), failing('team', 'veiled', 'no disk')]
    const may = allows('list reconcilers', 'list sites shop')
    expect(await failures(rows, may)).toEqual(['failing web site shop 24h0m no disk'])
    const { regions } = await overview(ask('/', []))
    expect(regions['failing']?.text).toContain('Nothing fails.')
  })
})

describe('the overview, of objects that are not ready', () => {
  const { group, version, resource } = KINDS
  const unready = (namespace: string, name: string, why: string, since = '2026-11-22T00:01:00.000Z'): Unready => ({
    ref: { group, version, resource },
    namespace,
    name,
    why,
    since,
  })
  const shownOf = async (
    objects: Unready[],
    { rows = [] as Row[], may = undefined as Ask['may'] | undefined } = {},
  ) => {
    const given = ask('/', rows, may)
    const asked: unknown[] = []
    const data = {
      ...given.data,
      unready: async (kinds: unknown) => {
        asked.push(kinds)
        return { objects, isCut: false }
      },
    }
    const { regions } = await overview({ ...given, data })
    const text = (regions['unready']?.text ?? '').replaceAll(/<[^>]*>/g, ' ').replaceAll(/\s+/g, ' ')
    return { text, asked }
  }

  it('shows whose they are, since when and why: one row for each cause, that of most objects first', async () => {
    const { text, asked } = await shownOf([
      unready('shop', 'alone', 'Starting: alone has no disk', '2026-11-20T00:01:00.000Z'),
      ...['a-1', 'a-2', 'a-3'].map((name) => unready('team', name, `Starting: ${name} waits for a node`)),
    ])
    expect(asked).toEqual([[{ group, version, resource }]])
    expect(text).toMatch(
      /not ready a-1 and 2 more site team 24h0m Starting: a-1 waits for a node not ready alone site shop 3d/,
    )
  })

  it('leaves out those that begin, and those that fail, which has a row of its own', async () => {
    const young = unready('shop', 'young', 'Starting', '2026-11-23T00:00:00.000Z')
    const failing = row('shop', 'failing', { state: 'waiting', reason: 'Error', error: 'no disk' })
    expect((await shownOf([young, unready('shop', 'failing', 'NoDisk')], { rows: [failing] })).text).toBe('')
  })

  it('shows only those that the person may list, and reads none for a person who may not list Reconcilers', async () => {
    const objects = [unready('shop', 'web', 'Starting'), unready('team', 'veiled', 'Starting')]
    const { text } = await shownOf(objects, { may: allows('list reconcilers', 'list sites shop') })
    expect([text.includes('web'), text.includes('veiled')]).toEqual([true, false])
    expect((await shownOf(objects, { may: allows('list sites') })).asked).toEqual([])
  })
})

describe('a person sees', () => {
  it('keys of the namespaces whose objects they may list', async () => {
    const rows = [row('shop', 'one'), row('secret', 'two')]
    const given = ask('/queue', rows, allows('list sites shop'))
    const found = await queueRows({ ...given, url: new URL('/queue/rows?to=9', given.url) })
    const { text } = found.rows
    expect([found.total, text.includes('one'), text.includes('two')]).toEqual([1, true, false])
  })

  it('runs of objects that they may list, and one run where they may get its object', async () => {
    const seen = await runsPage(ask('/runs', [], allows('list sites shop')))
    expect(seen.regions['runs']?.text).toContain('/runs/7')
    const unseen = await runsPage(ask('/runs', [], allows('list sites other')))
    expect(unseen.regions['runs']?.text).not.toContain('/runs/7')
    await expect(runPage(ask('/runs/7', [], allows('get sites other'), ['7']))).rejects.toThrow('you may not see it')
  })

  it('what a run wrote only of kinds that they may get, and its record only if they may get all of them', async () => {
    const some = ask('/runs/7', [], allows('get sites'), ['7'])
    expect((await runPage(some)).regions['laps']?.text).not.toContain('confidential-value')
    await expect(runRecord(some)).rejects.toThrow('may not get')
    const all = ask('/runs/7', [], allows('get sites', 'get configmaps'), ['7'])
    expect((await runPage(all)).regions['laps']?.text).toContain('confidential-value')
    expect(JSON.parse(await runRecord(all))).toEqual(RECORD)
  })

  it('what a run set on objects of others only if they may get their kind in all namespaces it names', async () => {
    const write = {
      verb: 'setFields' as const,
      kind: 'Node',
      name: 'a',
      differences: [{ path: '.x', after: 'confidential-value' }],
    }
    const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'a' } }
    const laps = [
      { input: { object: null, owned: {}, related: {} } as never, outcome: { patch: [node] }, writes: [write] },
    ]
    const served = async () => [
      { group: '', version: 'v1', kind: 'Node', resource: 'nodes', namespaced: false, aliases: [] },
    ]
    const shown = async (...allowed: string[]) => {
      const given = ask('/runs/7', [], allows('get sites', 'get configmaps', ...allowed), ['7'])
      const data = {
        ...given.data,
        run: async () => ({ ...RUN, record: { ...RECORD, laps } }),
        runsOf: async () => [],
        served,
      }
      return (await runPage({ ...given, data })).regions['laps']?.text ?? ''
    }
    expect(await shown()).not.toContain('confidential-value')
    expect(await shown('get nodes')).toContain('confidential-value')
  })

  it('what a run logged only if they may get all its kinds, and else how many lines there are', async () => {
    const lines = [
      {
        at: '2026-11-23T00:00:01.012Z',
        level: 'warn' as const,
        message: HOSTILE,
        fields: { key: 'confidential-value' },
      },
    ]
    const logOf = async (record: Partial<RunRecord>, ...allowed: string[]) => {
      const given = ask('/runs/7', [], allows(...allowed), ['7'])
      const run = async () => ({ ...RUN, record: { ...RECORD, ...record } })
      const { regions } = await runPage({ ...given, data: { ...given.data, run, runsOf: async () => [] } })
      return regions['log']?.text ?? ''
    }
    const log = { lines, omitted: 1200 }
    const seen = await logOf({ log }, 'get sites', 'get configmaps')
    expect(seen).toContain('+12ms')
    expect(seen).toContain('confidential-value')
    expect(seen).toContain('1,200 more lines are not recorded: see the log of the process')
    expect(harmful(seen)).toEqual([])
    const unseen = await logOf({ log }, 'get sites')
    expect(unseen).toContain('1 line is not shown')
    expect(unseen).not.toContain('onerror')
    expect(unseen).not.toContain('confidential-value')
    expect(await logOf({ overHttp: true, traceId: 'abc' }, 'get sites')).toContain(
      'its lines are in the log of the function&#39;s server, with the trace ID abc',
    )
    expect(await logOf({}, 'get sites')).toContain('No line is recorded')
  })

  describe('a record of a former spec only with the right to what it names:', () => {
    const policy = { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata: { name: 'veiled' } }
    const version = 'NetworkPolicy.v1.networking.k8s.io shop/veiled'
    const [lap] = RECORD.laps
    const input = { object: null, owned: {}, related: {} }
    const lapWith = (more: object) => ({ laps: [{ ...lap, writes: [], ...more }] as never })
    const write = { verb: 'apply', kind: 'NetworkPolicy', namespace: 'shop', name: 'veiled', differences: [] }
    it.each<[string, Partial<RunRecord>]>([
      ['an object of its input', { objects: { [`${version}@1`]: policy } }],
      ['an object whose contents are left out', lapWith({ input: { ...input, related: { n: [`${version}@1`] } } })],
      ['an object that it returned', lapWith({ outcome: { apply: [policy] } })],
      ['a write', lapWith({ writes: [{ ...write, error: 'veiled is invalid' }] })],
      ['a cause', { causes: [`deleted ${version}@1`] }],
    ])('%s', async (_, more) => {
      const record = { ...RECORD, ...more }
      const answered = async (...allowed: string[]) => {
        const given = ask('/runs/7', [], allows('get sites', 'list sites', 'get configmaps', ...allowed), ['7'])
        const stored = { ...RUN, record }
        const data = {
          ...given.data,
          run: async () => stored,
          runsOf: async () => [stored],
          recentRuns: async () => [stored],
          served: async () => [{ ...POLICIES, namespaced: true, aliases: [] }],
        }
        const asked = { ...given, data }
        const pages = [await runPage(asked), await runsPage(asked)]
        const text = pages.flatMap(({ regions }) => Object.values(regions).map((one) => one.text)).join()
        return { text, whole: await runRecord(asked).catch((error: Error) => error.message) }
      }
      const unseen = await answered()
      expect(unseen.whole).toContain('may not get')
      expect(unseen.text).not.toContain('veiled')
      expect((await answered('get networkpolicies other')).whole).toContain('may not get')
      const seen = await answered('get networkpolicies')
      expect(JSON.parse(seen.whole)).toEqual(record)
    })

    it('an object of another namespace', async () => {
      const objects = {
        'ConfigMap.v1 vault/veiled@1': { apiVersion: 'v1', kind: 'ConfigMap', metadata: policy.metadata },
      }
      const given = ask('/runs/7', [], allows('get sites', 'get configmaps shop'), ['7'])
      const stored = { ...RUN, record: { ...RECORD, objects, laps: [] } }
      const asked = { ...given, data: { ...given.data, run: async () => stored, runsOf: async () => [stored] } }
      await expect(runRecord(asked)).rejects.toThrow('may not get')
      const all = { ...asked, may: allows('get sites', 'get configmaps') }
      expect(JSON.parse(await runRecord(all))).toMatchObject({ objects })
    })

    it('the object, of another kind than that of today', async () => {
      const laps = [{ ...lap, input: { ...input, object: 'Vault.v1.example.com shop/web@1' } }] as never
      const stored = { ...RUN, record: { ...RECORD, laps } }
      const given = ask('/runs/7', [], allows('get sites', 'list sites', 'get configmaps'), ['7'])
      const served = async () => [{ ...KINDS, kind: 'Vault', resource: 'vaults', namespaced: true, aliases: [] }]
      const data = { ...given.data, run: async () => stored, recentRuns: async () => [stored], served }
      await expect(runPage({ ...given, data })).rejects.toThrow('you may not see it')
      expect((await runsPage({ ...given, data })).regions['runs']?.text).not.toContain('/runs/7')
    })
  })

  it('usage of the namespaces whose objects they may list, and of all others only if they may list namespaces', async () => {
    const seenBy = async (...allowed: string[]) => {
      const { regions } = await usagePage(ask('/usage', [], allows(...allowed)))
      const text = Object.values(regions).map((region) => region.text)
      return ['shop', 'veiled', 'hidden', '(platform)'].filter((name) => text.join('').includes(`<bdi>${name}</bdi>`))
    }
    expect(await seenBy('list sites shop')).toEqual(['shop'])
    expect(await seenBy('list sites')).toEqual(['shop', 'veiled'])
    expect(await seenBy('list sites', 'list namespaces')).toEqual(['shop', 'veiled', 'hidden', '(platform)'])
    expect(await seenBy()).toEqual([])
  })

  it('how many rows of usage are hidden because they asked for more than the console checks', async () => {
    const access: Partial<Access> = {
      async may(_, { namespace }, unchecked) {
        if (namespace === 'veiled') unchecked?.()
        return namespace === 'shop'
      },
    }
    const asked = { ...ask('/usage', []), ...askedOnce(access as Access, { name: 'a', groups: [] }) }
    const { regions } = await usagePage(asked)
    expect(regions['hidden']?.text).toContain('1 row of a function in a namespace is hidden')
    expect((await usagePage(ask('/usage', []))).regions['hidden']?.text).toBe('')
  })

  it('dead letters, which may be of any object, only with the right to list them', async () => {
    await expect(deadPage(ask('/dead', [], allows('list sites')))).rejects.toThrow('reconcilers/dead')
    expect((await deadPage(ask('/dead', [], allows('list reconcilers/dead')))).regions['letters']?.text).toContain(
      'Nothing is dead',
    )
  })
})

it('a right is asked for once in a page, however many rows need it', async () => {
  let asked = 0
  const access = { may: async () => ++asked > 0 } as Partial<Access> as Access
  const { may } = askedOnce(access, { name: 'a', groups: [] })
  const rows = Array.from({ length: 1000 }, (_, index) => row('shop', `n${index}`))
  expect((await queueRows(ask('/queue/rows?to=300', rows, may))).total).toBe(1000)
  expect(asked).toBe(1)
})

it('parts of an address are decoded, and one that cannot be is taken as it is', () => {
  expect(routeOf('/objects/sites.example.com/_/a%2Fb')?.params).toEqual(['sites.example.com', '_', 'a/b'])
  expect(routeOf('/objects/a/b/%E0%A4%A')?.params).toEqual(['a', 'b', '%E0%A4%A'])
  expect(routeOf('/objects/a/b')).toBeUndefined()
})

it('an error of a server is shown as that server, any other error is not', () => {
  const named = (name: string) => Object.assign(new Error('no answer'), { name })
  expect(awayIn(named('JetStreamError'))).toMatchObject({ server: 'NATS', message: 'no answer' })
  expect(awayIn(named('ApiConnectionError'))).toMatchObject({ server: 'The API server' })
  expect(awayIn(new TypeError('wrong'))).toBeUndefined()
})

describe('access on this machine', () => {
  const access = localAccess({ port: () => 8484 })
  const token = access.path.replace('/?token=', '')
  const request = (headers: Record<string, string>, url = '/') =>
    ({ url, headers }) as Partial<IncomingMessage> as IncomingMessage
  const host = 'localhost:8484'
  const good = { host, cookie: `other=1; fairlead_console_8484=${token}` }

  it.each([
    ['with the cookie', good],
    ['with the token as a bearer', { host: '127.0.0.1:8484', authorization: `Bearer ${token}` }],
    ['from its own pages', { ...good, origin: `http://${host}` }],
  ])('is given %s', async (_, headers) => {
    expect(await access.authenticate(request(headers))).toMatchObject({ groups: [] })
  })

  it.each([
    ['without a token', { host }, 401],
    ['with a wrong token', { host, cookie: 'fairlead_console_8484=wrong' }, 401],
    ['with the cookie of another console', { host, cookie: `fairlead_console_9999=${token}` }, 401],
    ['by another name, which may have been bound to this address', { ...good, host: 'evil.example.com:8484' }, 403],
    ['by another port', { ...good, host: 'localhost:80' }, 403],
    ['from a page of another origin', { ...good, origin: 'https://evil.example.com' }, 403],
    ['from a page without an origin', { ...good, origin: 'null' }, 403],
  ])('is refused %s', async (_, headers, status) => {
    expect(await access.authenticate(request(headers))).toMatchObject({ status })
  })

  it('turns the token of the address into a cookie that scripts and other sites cannot use', () => {
    expect(access.cookieFor(request({ host }, access.path))).toBe(
      `fairlead_console_8484=${token}; HttpOnly; SameSite=Strict; Path=/`,
    )
    expect(access.cookieFor(request({ host }, '/?token=wrong'))).toBeUndefined()
    expect(access.cookieFor(request({ host: 'evil.example.com:8484' }, access.path))).toBeUndefined()
  })
})
