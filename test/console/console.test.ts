import { readFile, writeFile } from 'node:fs/promises'
import { createServer, request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Abilities, createConsole, type Data, openData } from '#console'
import { type LocalAccess, localAccess, WriteRecord } from '#console/access'
import { deadKey } from '#events'
import { conditionOf } from '#inspect'
import { resourcePath } from '#kube'
import { createLogger } from '#process/logging'
import { abilitiesOf } from '../../cli/commands/console.ts'
import { readConfig } from '../../cli/process/config.ts'
import { startWorld, type World } from '../inspect/real.ts'
import { type Browser, startBrowser, whyNoBrowser } from '../support/browser.ts'
import { until } from '../support/wait.ts'

const SITES = { group: 'example.com', version: 'v1', resource: 'sites' }
const EVENTS = { group: '', version: 'v1', resource: 'events' }
/** Text that would be markup, move a cursor, or turn the rest of a line. */
const HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>\u001b[31mred\u202ereversed'
const HOSTILE_DATA = '<img src=x onerror=alert(1)>'
const KEYS = 10_000
const AWAY = 503
/** A folder for screenshots of all pages, such as those in docs/images. */
const SCREENSHOTS = process.env['FAIRLEAD_SCREENSHOTS']

interface Served {
  base: string
  access: LocalAccess
  data: Data
  log: { writes: boolean }
  abilities: Pick<Abilities, 'preview' | 'replay'>
  stop(): Promise<void>
  start(): Promise<void>
}

let world: World
let served: Served
let browser: Browser

/** The console as the command serves it, on a server that can go away and come back with the same token. */
async function serve(writes: { on: boolean }): Promise<Served> {
  const config = readConfig({ ...world.env, LOG_LEVEL: 'silent' })
  const log = await createLogger(config)
  const data = openData(config, log)
  let port = 0
  const record = new WriteRecord({ kube: world.kube, instance: 'test', log, date: () => new Date() })
  const access = localAccess({ port: () => port })
  const { preview, replay } = abilitiesOf(config, {
    allowWrites: false,
    function: [await laterModule()],
    env: { ...process.env, ...world.env },
  })
  const abilities = {
    get writes() {
      return writes.on
    },
    preview: once(preview),
    replay: once(replay),
  }
  const handler = createConsole({
    clusters: [{ data, abilities, record: (...of) => record.record(...of) }],
    access,
    cookieFor: (request) => access.cookieFor(request),
    log,
  })
  let server = createServer(handler)
  const start = async () => {
    server = createServer(handler)
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
    port = (server.address() as AddressInfo).port
  }
  await start()
  return {
    base: `http://127.0.0.1:${port}`,
    access,
    data,
    log: { writes: writes.on },
    abilities,
    start,
    async stop() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Each answer is computed once: it starts a process, which takes seconds on a busy machine. */
function once<Given extends unknown[]>(ask: ((...given: Given) => Promise<unknown>) | undefined) {
  const known = new Map<string, Promise<unknown>>()
  return async (...given: Given): Promise<unknown> => {
    const key = JSON.stringify(given)
    const answer = known.get(key) ?? ask?.(...given) ?? Promise.resolve()
    known.set(key, answer)
    return answer
  }
}

/** The functions as their author has changed them since. */
async function laterModule(): Promise<string> {
  const path = join(dirname(world.module), 'later.ts')
  const text = await readFile(world.module, 'utf8')
  await writeFile(path, text.replace('data: { mode }', `data: { mode, more: '${HOSTILE_DATA}' }`))
  return path
}

const writes = { on: false }
const create = (name: string, spec: object = {}) =>
  world.kube.create(resourcePath(SITES, 'default'), {
    apiVersion: 'example.com/v1',
    kind: 'Site',
    metadata: { name },
    spec,
  })

async function enqueue(reconciler: string, count: number): Promise<void> {
  await world.streams.queue.declare(reconciler)
  for (let first = 0; first < count; first += 250)
    await Promise.all(
      Array.from({ length: 250 }, (_, index) => {
        const number = String(first + index).padStart(5, '0')
        return world.streams.queue.enqueue(reconciler, `team-${index % 7}.object-${number}`)
      }),
    )
}

describe.skipIf(whyNoBrowser() !== undefined)('the console in a browser', () => {
  beforeAll(async () => {
    world = await startWorld()
    await world.perform('fairlead install -f FILE')
    await world.bridge.start()
    await world.dispatcher.start()
    for (const [name, mode] of Object.entries({ hello: 'ok', failing: 'error', wrong: 'terminal', refused: 'invalid' }))
      await create(name, { mode })
    const hello = await world.kube.get(resourcePath(SITES, 'default', 'hello'))
    await world.kube.create(resourcePath(EVENTS, 'default'), {
      apiVersion: 'v1',
      kind: 'Event',
      metadata: { name: 'hostile' },
      type: 'Warning',
      reason: 'Hostile',
      message: HOSTILE,
      lastTimestamp: new Date().toISOString(),
      involvedObject: {
        apiVersion: 'example.com/v1',
        kind: 'Site',
        namespace: 'default',
        name: 'hello',
        uid: hello.metadata.uid,
      },
    })
    await startSlowly()
    await fillQueue()
    served = await serve(writes)
    browser = await startBrowser()
    await until(async () => (await served.data.recentRuns({})).length >= 5)
    await browser.page.goto(`${served.base}${served.access.path}`)
    await until(() => browser.page.evaluate(`location.pathname === '/' && location.search === ''`))
  })
  afterEach(() => {
    writes.on = false
  })
  afterAll(async () => {
    await browser?.[Symbol.asyncDispose]()
    await served?.stop()
    await served?.data.close()
    await world?.[Symbol.asyncDispose]()
  })

  /** An object whose runs succeed, and that has not been Ready for long. */
  async function startSlowly(): Promise<void> {
    await create('slow', { mode: 'deployment' })
    const path = resourcePath(SITES, 'default', 'slow')
    const unready = await until(async () => conditionOf(await world.kube.get(path), 'Ready') ?? false)
    const conditions = [{ ...unready, lastTransitionTime: '2026-01-01T00:00:00Z' }]
    await world.kube.patch(`${path}/status`, { status: { conditions } }, 'merge')
  }

  async function fillQueue(): Promise<void> {
    const { queue, dead } = world.streams
    await queue.declare('hostile')
    const worker = queue.serve({
      reconciler: 'hostile',
      slots: 1,
      handler: async () => ({ kind: 'terminal', message: HOSTILE }),
    })
    await queue.enqueue('hostile', 'default.hostile')
    await until(async () => (await queue.depth('hostile')).parked === 1)
    await worker.drain(0)
    const of = {
      reconciler: 'hostile',
      key: 'default.dead',
      lane: 'high' as const,
      since: new Date(),
      stream: queue.stream,
    }
    await dead.put(deadKey({ ...of, reason: 'unknown-reconciler', detail: HOSTILE }))
    await enqueue('unserved', KEYS)
  }

  /** A busy machine may be slow, which is not an error. */
  const shown = (text: string) =>
    until(
      () =>
        browser.page.evaluate<boolean>(
          `document.readyState === 'complete' && document.querySelector('main').innerText.includes(${JSON.stringify(text)})`,
        ),
      { what: text },
    )
  const reported = async (text: string) => {
    const report = () => browser.page.evaluate<string>(`document.querySelector('#report').innerText`)
    expect(await until(async () => (await report()) || false)).toContain(text)
  }
  const open = async (path: string, text: string) => {
    await until(async () => (await browser.page.goto(`${served.base}${path}`))?.status() !== AWAY)
    await shown(text)
  }
  /** A busy machine may answer the console too late: it says so with this code, and the page goes on by itself. */
  const complaints = () => browser.complaints().filter((one) => !one.includes(`status of ${AWAY}`))
  const runOf = async (name: string) => {
    const runs = await served.data.runsOf({ reconciler: 'site', namespace: 'default', name })
    return `/runs/${runs[0]?.sequence}`
  }

  /** The address of a page, after the answer that it shows is known. */
  const previewOf = async (name: string) => {
    await served.abilities.preview?.('site', 'default', name)
    return `/preview/site/default/${name}`
  }
  const replayOf = async (name: string) => {
    const run = await runOf(name)
    await served.abilities.replay?.(Number(run.split('/').at(-1)))
    return `${run}/replay`
  }

  const PAGES: [page: string, path: () => string | Promise<string>, text: string][] = [
    ['overview', () => '/', 'Not ready'],
    ['queue', () => '/queue', '10,00'],
    ['queue of failures', () => '/queue?errors=only', 'no route to host'],
    ['empty queue', () => '/queue?namespace=none', 'No key matches'],
    ['object that is not healthy', () => '/objects/sites.example.com/default/refused', 'Next step'],
    ['healthy object', () => '/objects/sites.example.com/default/hello', 'Nothing has to be done'],
    ['object that does not exist', () => '/objects/sites.example.com/default/none', 'not there'],
    ['runs', () => '/runs', 'no route to host'],
    ['run', () => runOf('hello'), 'decides by the mode'],
    ['preview', () => previewOf('hello'), 'would end: nothing left to do'],
    ['preview of a failure', () => previewOf('failing'), 'would fail, and be tried again'],
    ['replay that differs', () => replayOf('hello'), 'decides otherwise than it did'],
    ['replay as it was', () => replayOf('failing'), 'decides as it did'],
    ['events', () => '/events', 'modified'],
    ['dead letters', () => '/dead', 'unknown-reconciler'],
    ['dead letter', () => '/dead/1', 'What it is'],
    ['address without a page', () => '/none', 'There is no such page'],
  ]
  const AXE = `axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ': ' + nodes.slice(0, 3).map(({ html }) => html).join(' | ')))`
  const LOOKS = {
    light: { width: 1280 },
    dark: { width: 1280, dark: true },
    phone: { width: 390 },
    'phone and dark': { width: 390, dark: true },
    narrow: { width: 320 },
  }

  const look = async ({ width, dark = false }: { width: number; dark?: boolean }) => {
    await browser.page.setViewportSize({ width, height: 900 })
    await browser.page.emulateMedia({ colorScheme: dark ? 'dark' : 'light' })
  }

  it.each(PAGES)(
    '%s: fits wide and narrow screens, light and dark, without a finding of axe',
    async (page, path, text) => {
      const axe = await readFile(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8')
      await look(LOOKS.light)
      await open(await path(), text)
      await browser.page.evaluate(`${axe};0`)
      for (const [name, one] of Object.entries(LOOKS)) {
        await look(one)
        const findings = await browser.page.evaluate<string[]>(AXE)
        const isTooWide = await browser.page.evaluate('document.documentElement.scrollWidth > innerWidth')
        expect({ name, findings, isTooWide }).toEqual({ name, findings: [], isTooWide: false })
        if (SCREENSHOTS !== undefined)
          await writeFile(
            join(SCREENSHOTS, `${page} ${name}.png`.replaceAll(' ', '-')),
            await browser.page.screenshot(),
          )
      }
      await look(LOOKS.light)
      const status = page === 'address without a page' ? /status of 404/ : /^$/
      expect(complaints().filter((one) => !status.test(one))).toEqual([])
    },
  )

  it('the overview names what has not been Ready for long, though its runs succeed', async () => {
    await open('/', 'Not ready')
    const row = `document.querySelector('#r-unready tbody tr').innerText`
    expect(await browser.page.evaluate<string>(row)).toMatch(/slow[^]*site[^]*default[^]*Starting/)
    expect(await browser.page.evaluate(`document.querySelectorAll('#r-unready tbody tr').length`)).toBe(1)
  })

  it('text of others stays text on every page, and runs nothing', async () => {
    browser.complaints()
    for (const path of ['/queue?reconciler=hostile', '/dead', '/dead/1', '/objects/sites.example.com/default/hello']) {
      await open(path, '<img src=x onerror=')
      expect(
        await browser.page.evaluate('[document.title.length > 1, document.images.length, document.scripts.length]'),
      ).toEqual([true, 0, 1])
      expect(await browser.page.evaluate(String.raw`/[\u001b\u202e]/.test(document.body.innerHTML)`)).toBe(false)
    }
    expect(complaints()).toEqual([])
  })

  it('a preview and a replay show what the changed function would do otherwise, field by field, and write nothing', async () => {
    for (const path of [await previewOf('hello'), await replayOf('hello')]) {
      await open(path, HOSTILE_DATA)
      const added = `[...document.querySelectorAll('.changes .added')].map((one) => one.innerText).join()`
      expect(await browser.page.evaluate(added)).toMatch(/data\.more/)
      expect(await browser.page.evaluate('document.images.length')).toBe(0)
    }
    const map = resourcePath({ group: '', version: 'v1', resource: 'configmaps' }, 'default', 'hello')
    expect(await world.kube.get(map)).toMatchObject({ data: { mode: 'ok' } })
    expect((await world.kube.get(map))['data']).not.toHaveProperty('more')
  })

  it('every page and row can be reached by keyboard alone', async () => {
    await open('/', 'Reconcilers')
    await browser.page.keyboard.press('Tab')
    expect(await browser.page.evaluate('document.activeElement.className')).toBe('skip')
    await browser.page.keyboard.press('g')
    await browser.page.keyboard.press('r')
    await until(() =>
      browser.page.evaluate(
        `document.readyState === 'complete' && location.pathname === '/runs' && document.querySelector('tbody a') !== null`,
      ),
    )
    await browser.page.keyboard.press('j')
    expect(await browser.page.evaluate('document.activeElement.closest("tbody") !== null')).toBe(true)
    await browser.page.keyboard.press('Enter')
    await until(() => browser.page.evaluate(String.raw`/^\/runs\/\d+$/.test(location.pathname)`))
    await shown('Why it came')
    await browser.page.keyboard.press('/')
    for (const letter of 'sites/hello') await browser.page.keyboard.press(letter)
    await browser.page.keyboard.press('Enter')
    await until(() => browser.page.evaluate(`location.pathname === '/objects/sites/_/hello'`))
    await shown('Nothing has to be done')
    await browser.page.keyboard.press('?')
    expect(await browser.page.evaluate('document.querySelector("#keys").open')).toBe(true)
    await browser.page.keyboard.press('Escape')
    expect(await browser.page.evaluate('document.querySelector("#keys").open')).toBe(false)
    await browser.page.keyboard.press('g')
    await browser.page.keyboard.press('o')
    await shown('Failing')
    await browser.page.keyboard.press('j')
    expect(await browser.page.evaluate('document.activeElement.closest("#r-failing tbody") !== null')).toBe(true)
  })

  it('shows 10,000 keys by the rows that are in sight, to the last one', async () => {
    await open('/queue?reconciler=unserved', '10,000 keys')
    const rows = () => browser.page.evaluate<number>('document.querySelectorAll(".rows tbody tr[data-key]").length')
    expect(await rows()).toBeLessThan(150)
    const names = () =>
      browser.page.evaluate<string[]>('[...document.querySelectorAll(".rows .key bdi")].map((one) => one.innerText)')
    const all = new Set<string>()
    for (let place = 0; place <= 1; place += 0.25) {
      const before = await names()
      // The page may not have its height yet.
      await until(async () => {
        await browser.page.evaluate(`scrollTo(0, (document.body.scrollHeight - innerHeight) * ${place})`)
        return place === 0 || (await names())[0] !== before[0]
      })
      for (const name of await names()) all.add(name)
      expect(await rows()).toBeLessThan(150)
    }
    expect(all.size).toBeGreaterThan(200)
    expect(
      await browser.page.evaluate(
        'Number([...document.querySelectorAll(".rows tr[aria-rowindex]")].at(-1).ariaRowIndex)',
      ),
    ).toBe(KEYS + 1)
  })

  it('follows thousands of changes in a tenth as many updates at most, and ends with the newest state', async () => {
    await open('/queue?reconciler=burst', 'No key matches')
    await browser.page.evaluate(
      `globalThis.updates = 0; new MutationObserver(() => globalThis.updates++).observe(document.querySelector('#r-count'), { childList: true });0`,
    )
    await enqueue('burst', 3000)
    await shown('3,000 keys: 3,000 queued')
    const updates = await browser.page.evaluate<number>('globalThis.updates')
    expect(updates).toBeGreaterThan(0)
    expect(updates).toBeLessThan(300)
    await until(() => browser.page.evaluate('document.querySelectorAll(".rows tr[data-key]").length > 10'))
    expect(complaints()).toEqual([])
  })

  it('acts on the keys that are ticked, only with writes, and reports each on its object', async () => {
    await open('/queue?reconciler=site&name=wrong', '1 parked')
    expect(await browser.page.evaluate('document.querySelector("[data-act], .pick")')).toBeNull()
    writes.on = true
    await open('/queue?reconciler=site&name=wrong', '1 parked')
    await browser.page.evaluate('document.querySelector(".rows input").click()')
    expect(await browser.page.evaluate(`document.querySelector('[data-stop]').checkVisibility()`)).toBe(false)
    await browser.page.evaluate(`document.querySelector('[data-act=retry]').click()`)
    await reported('Retried: 1 queued')
    await until(async () => {
      const { items } = await world.kube.request<{ items: { reason?: string; involvedObject?: { name: string } }[] }>({
        method: 'GET',
        path: resourcePath(EVENTS, 'default'),
      })
      return items.some(
        ({ reason, involvedObject }) => reason === 'ChangedByConsole' && involvedObject?.name === 'wrong',
      )
    })
    await open('/queue?reconciler=burst', '3,000 keys')
    await browser.page.evaluate(
      `document.querySelector('.rows input').click(); document.querySelector('[data-pick=all]').click();0`,
    )
    const purge = `document.querySelector('[data-act=purge]').click(); document.querySelector('[data-act=purge]').click()`
    await browser.page.evaluate(`${purge}; document.querySelector('[data-stop]').click();0`)
    await reported('Purged: 1,000 purged; stopped, 2,000 left')
    await shown('2,000 keys: 2,000 queued')
    await browser.page.evaluate(
      `document.querySelector('.rows input').click(); document.querySelector('[data-pick=all]').click();0`,
    )
    await browser.page.evaluate(`${purge};0`)
    await shown('No key matches')
    await until(() => browser.page.evaluate(`document.querySelector('#report').innerText === 'Purged: 2,000 purged'`))
    expect(await browser.page.evaluate(`document.querySelector('[data-stop]').hidden`)).toBe(true)
  })

  it('reports NATS and the console that go away, keeps what it shows, and goes on when they are back', async () => {
    await open('/', 'Reconcilers')
    world.cluster.nats?.signal('SIGSTOP')
    try {
      await shown('NATS does not answer')
      await shown('Reconcilers')
    } finally {
      world.cluster.nats?.signal('SIGCONT')
    }
    await until(() => browser.page.evaluate(`document.querySelector('#r-notice').innerText === ''`))
    await served.stop()
    await shown('The console does not answer')
    expect(await browser.page.evaluate(`document.querySelector('#live').innerText`)).toBe('not live')
    await served.start()
    await until(() => browser.page.evaluate(`document.querySelector('#live').innerText === 'live'`))
    await until(() => browser.page.evaluate(`document.querySelector('#r-notice').innerText === ''`))
    browser.complaints()
  })

  it('reports a browser that is not known any more, with the reason', async () => {
    const known = served
    await open('/', 'Reconcilers')
    await served.stop()
    served = await serve(writes)
    // Another token, at the address of the console before.
    const { port } = new URL(known.base)
    const other = createServer((_, response) =>
      response.writeHead(401, { 'content-type': 'application/json' }).end('{"say":"open the address"}'),
    )
    await new Promise<void>((resolve) => other.listen(Number(port), '127.0.0.1', resolve))
    await shown('does not know this browser any more')
    other.closeAllConnections()
    await new Promise((resolve) => other.close(resolve))
    await known.data.close()
    browser.complaints()
  })

  const ask = (path: string, options: { method?: string; headers?: Record<string, string>; body?: string } = {}) => {
    const { promise, resolve, reject } = Promise.withResolvers<{
      status: number
      headers: NodeJS.Dict<string | string[]>
      text: string
    }>()
    const { method = 'GET', headers = {}, body } = options
    const sent = httpRequest(`${served.base}${path}`, { method, headers }, (response) => {
      let text = ''
      response.on('data', (chunk: Buffer) => (text += chunk.toString()))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }))
    })
    sent.on('error', reject)
    sent.end(body)
    return promise
  }
  const bearer = () => ({ authorization: `Bearer ${served.access.path.split('=')[1]}` })

  it('refuses requests without the token, of other hosts and pages, and writes that a form could send', async () => {
    const statusOf = async (...given: Parameters<typeof ask>) => (await ask(...given)).status
    expect(await statusOf('/')).toBe(401)
    expect(await statusOf('/live?page=/')).toBe(401)
    expect(await statusOf('/', { headers: bearer() })).toBe(200)
    expect(await statusOf('/', { headers: { ...bearer(), host: 'evil.example.com' } })).toBe(403)
    expect(await statusOf('/', { headers: { ...bearer(), origin: 'https://evil.example.com' } })).toBe(403)
    const write = { method: 'POST', body: JSON.stringify({ act: 'retry', keys: [['site', 'default', 'wrong']] }) }
    expect(await statusOf('/act', { ...write, headers: bearer() })).toBe(403)
    const refused = await ask('/act', { ...write, headers: { ...bearer(), 'x-fairlead-write': '1' } })
    expect(refused.text).toContain('--allow-writes')
    writes.on = true
    const wrong = {
      ...write,
      headers: { ...bearer(), 'x-fairlead-write': '1' },
      body: '{"act":"retry","keys":[["site",1]]}',
    }
    expect(await ask('/act', wrong)).toMatchObject({
      status: 400,
      text: expect.stringContaining('names nothing') as string,
    })
    writes.on = false
  })

  it('loads nothing of another host, runs nothing inline, and has less than 60 KB of scripts and styles', async () => {
    const { headers, text } = await ask('/', { headers: bearer() })
    expect(headers['content-security-policy']).toMatch(/default-src 'none'; script-src 'self'; style-src 'self'/)
    expect(headers['content-security-policy']).not.toContain('unsafe')
    const paths = [...text.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, path = '']) => path)
    expect(text).not.toMatch(/(?:src|href)="(?:https?:)?\/\//)
    const folder = paths[0]?.replace(/[^/]+$/, '') ?? ''
    const modules = ['acts', 'bulk', 'console', 'dom', 'keys', 'live', 'rows', 'selection', 'times'].map(
      (name) => `${folder}${name}.js`,
    )
    let bytes = 0
    for (const path of new Set([...paths, ...modules])) {
      const { status, headers: sent } = await ask(path, { headers: { 'accept-encoding': 'gzip' } })
      expect([path, status]).toEqual([path, 200])
      bytes += (await ask(path, { headers: { 'accept-encoding': 'gzip' } })).text.length
      expect(sent['content-encoding']).toBe('gzip')
    }
    expect(bytes).toBeLessThan(60_000)
  })
})
