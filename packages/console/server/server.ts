import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import type { Logger } from 'pino'
import type { Access, Person, RecordWrite } from '#console/access'
import { UsageError } from '#process/exit'
import { awayIn, type Data } from '../data/data.ts'
import { html, within } from '../html.ts'
import { deadPage, letterPage } from '../pages/dead.ts'
import { eventsPage } from '../pages/events.ts'
import { clustersDocument, layout, noticeOf, refusalDocument, troublePage } from '../pages/layout.ts'
import { objectPage } from '../pages/object.ts'
import { overview } from '../pages/overview.ts'
import { type Abilities, type Ask, askedOnce, NotFoundError, type Page, type PageOf } from '../pages/page.ts'
import { objectPath } from '../pages/parts.ts'
import { previewPage, replayPage } from '../pages/preview.ts'
import { queuePage, queueRows } from '../pages/queue.ts'
import { latestRunPage, runPage, runRecord } from '../pages/run.ts'
import { runsPage } from '../pages/runs.ts'
import { usagePage } from '../pages/usage.ts'
import { perform, type Wanted } from './acts.ts'
import { begin, follow, redirect, sendHtml, sendJson } from './live.ts'

/** A cluster that the console shows. */
export interface ShownCluster {
  /** Left out: the process knows one cluster only, without a name. */
  name?: string | undefined
  labels?: Record<string, string>
  data: Data
  abilities: Abilities
  record: RecordWrite
}

export interface ConsoleOptions {
  /** The pages of a cluster with a name begin at `/clusters/NAME/`: a page that is still open follows no other cluster. */
  clusters: readonly [ShownCluster, ...ShownCluster[]]
  access: Access
  /** A cookie for a request that brings the token in its address. Left out: there is no such way in. */
  cookieFor?: (request: IncomingMessage) => string | undefined
  log: Logger
}

/** Streams at once, of all persons and of one: each is a tab. */
const TABS = 128
const TABS_OF_PERSON = 24
const BODY_BYTES = 256 * 1024
/** A form cannot send it, and a page of another origin may not. */
const WRITE_HEADER = 'x-fairlead-write'

/** Returns what answers the requests of the console. */
export function createConsole({ clusters, access, cookieFor, log }: ConsoleOptions): RequestListener {
  const assets = loadAssets()
  const tabs = new Map<string, number>()

  const askOf = ({ cluster, path }: Chosen, person: Person, url: URL, params: readonly string[]): Ask => ({
    person,
    ...askedOnce(access, person),
    ...(cluster.name !== undefined && { cluster: { name: cluster.name, path } }),
    data: cluster.data.of(person.name),
    abilities: cluster.abilities,
    url,
    params,
    now: new Date(),
    log,
  })

  async function show(response: ServerResponse, ask: Ask, route: Route): Promise<void> {
    const [status, page] = await pageOf(ask, route)
    sendHtml(response, status, layout(ask, page, assets))
  }

  async function live(request: IncomingMessage, response: ServerResponse, chosen: Chosen, ask: Ask): Promise<void> {
    const url = new URL(ask.url.searchParams.get('page') ?? '/', ask.url)
    const route = routeOf(url.pathname)
    if (route === undefined) return sendJson(response, 404, { say: 'there is no such page' })
    const { name } = ask.person
    const own = tabs.get(name) ?? 0
    if (own >= TABS_OF_PERSON)
      return sendJson(response, 503, { say: `you have ${TABS_OF_PERSON} tabs open already: close some` })
    const all = [...tabs.values()].reduce((sum, count) => sum + count, 0)
    if (all >= TABS) return sendJson(response, 503, { say: `${TABS} tabs are open already: close some` })
    tabs.set(name, own + 1)
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    try {
      // The access may have changed meanwhile: each look asks again. A person who is signed out learns it from the next stream.
      const look = async () => {
        const person = await access.authenticate(request)
        if (!('status' in person)) return linked(await route.page(askOf(chosen, person, url, route.params)), chosen)
        gone.abort()
        throw new Error(person.message)
      }
      await follow(response, look, gone.signal)
    } catch (error) {
      if (!gone.signal.aborted) log.warn({ err: error, page: url.pathname }, 'a page of the console cannot be followed')
    } finally {
      const left = (tabs.get(name) ?? 1) - 1
      if (left === 0) tabs.delete(name)
      else tabs.set(name, left)
      response.end()
    }
  }

  async function act(request: IncomingMessage, response: ServerResponse, { cluster }: Chosen, ask: Ask): Promise<void> {
    if (request.headers[WRITE_HEADER] !== '1')
      return sendJson(response, 403, { say: `a write needs the header ${WRITE_HEADER}: 1` })
    const wanted = await bodyOf(request)
    try {
      const done = await perform(wanted, ask, cluster.record)
      cluster.data.forget()
      sendJson(response, 200, done)
    } catch (error) {
      const away = awayIn(error)
      if (!(error instanceof UsageError) && away === undefined) throw error
      sendJson(response, away ? 503 : 400, { say: (error as Error).message, isDone: false })
    }
  }

  async function showClusters(request: IncomingMessage, response: ServerResponse, { pathname }: URL): Promise<void> {
    if (request.method !== 'GET' || isLive(pathname))
      return sendJson(response, 404, { say: 'the address names no cluster of this console: choose one at /clusters' })
    if (pathname === '/') return redirect(response, clusters.length > 1 ? '/clusters' : `${pathOf(clusters[0].name)}/`)
    const rows = await Promise.all(
      clusters.map(async ({ name = '', labels = {}, data }) => {
        const [nats, kube] = await Promise.all([data.natsAway(), data.kubeAway()])
        const away = (nats && `NATS: ${nats}`) ?? (kube && `The API server: ${kube}`)
        return { name, path: pathOf(name), labels, away }
      }),
    )
    sendHtml(response, pathname === '/clusters' ? 200 : 404, clustersDocument(rows, assets))
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://console')
    const asset = assets.get(url.pathname)
    if (asset !== undefined) {
      const isZipped = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '')
      const headers = {
        'content-type': asset.type,
        'cache-control': 'public, max-age=31536000, immutable',
        vary: 'accept-encoding',
      }
      begin(response, 200, isZipped ? { ...headers, 'content-encoding': 'gzip' } : headers).end(
        isZipped ? asset.gzip : asset.body,
      )
      return
    }
    const cookie = cookieFor?.(request)
    if (cookie !== undefined) return redirect(response, '/', { 'set-cookie': cookie })
    const person = await access.authenticate(request)
    if ('status' in person) {
      const { status, message } = person
      if (isLive(url.pathname) || request.method === 'POST') return sendJson(response, status, { say: message })
      return sendHtml(response, status, refusalDocument(status, message, assets, cookieFor !== undefined))
    }
    const chosen = chosenBy(clusters, url)
    if (chosen === undefined) return showClusters(request, response, url)
    const ask = askOf(chosen, person, url, [])
    if (request.method === 'POST' && url.pathname === '/act') return act(request, response, chosen, ask)
    if (request.method !== 'GET') return sendJson(response, 405, { say: 'GET pages, POST /act' })
    if (url.pathname === '/live') return live(request, response, chosen, ask)
    if (url.pathname === '/queue/rows') return sendJson(response, 200, await rowsOf(ask, chosen))
    if (url.pathname === '/objects') return redirect(response, `${chosen.path}${foundPath(url)}`)
    const [, run] = /^\/runs\/(\d+)\/record$/.exec(url.pathname) ?? []
    if (run !== undefined) {
      const record = await runRecord({ ...ask, params: [run] })
      begin(response, 200, { 'content-type': 'application/json' }).end(record)
      return
    }
    const route = routeOf(url.pathname)
    if (route !== undefined) return show(response, { ...ask, params: route.params }, route)
    sendHtml(response, 404, layout(ask, troublePage('There is no such page', 'The address is wrong.'), assets))
  }

  return (request, response) => {
    answer(request, response).catch((error: unknown) => fail(response, error, log))
  }
}

/** A cluster, and the beginning of the addresses of its pages. */
interface Chosen {
  cluster: ShownCluster
  path: string
}

const pathOf = (name = ''): string => `/clusters/${name}`

const isLive = (pathname: string): boolean => /^(\/clusters\/[^/]+)?\/live$/.test(pathname)

/** Returns the cluster that the address names, and takes its name off the address. */
function chosenBy(clusters: ConsoleOptions['clusters'], url: URL): Chosen | undefined {
  if (clusters[0].name === undefined) return { cluster: clusters[0], path: '' }
  const [, name, rest = '/'] = /^\/clusters\/([^/]+)(\/.*)?$/.exec(url.pathname) ?? []
  const cluster = clusters.find((one) => one.name === name)
  if (name === undefined || cluster === undefined) return undefined
  url.pathname = rest
  return { cluster, path: pathOf(name) }
}

const linked = (page: Page, { path }: Chosen): Page => ({
  ...page,
  regions: Object.fromEntries(Object.entries(page.regions).map(([id, region]) => [id, within(path, region)])),
})

async function rowsOf(ask: Ask, { path }: Chosen): Promise<object> {
  const { rows, ...counts } = await queueRows(ask)
  return { ...counts, html: within(path, rows).text }
}

/** Makes a page also of an object that does not exist, and of a server that is away. */
async function pageOf(ask: Ask, { page }: Route): Promise<[status: number, page: Page]> {
  try {
    return [200, await page(ask)]
  } catch (error) {
    if (error instanceof NotFoundError) return [404, troublePage('There is nothing to see here', error.message)]
    const found = awayIn(error)
    if (found) {
      const away = { title: 'No answer', section: 'none' as const, head: html``, everyMs: 1000 }
      return [503, { ...away, regions: { notice: noticeOf(found) } }]
    }
    throw error
  }
}

function fail(response: ServerResponse, error: unknown, log: Logger): void {
  if (error instanceof NotFoundError || error instanceof UsageError) {
    if (!response.headersSent) sendJson(response, 404, { say: error.message })
    return
  }
  const away = awayIn(error)
  if (away && !response.headersSent) return sendJson(response, 503, { say: away.message })
  log.warn({ err: error }, 'a request of the console failed')
  if (response.headersSent) response.destroy()
  else sendJson(response, 500, { say: 'the console has failed on this request: see its log' })
}

async function bodyOf(request: IncomingMessage): Promise<Wanted> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > BODY_BYTES) throw new UsageError(`a request has ${BODY_BYTES} bytes at most`)
    chunks.push(chunk)
  }
  try {
    return (JSON.parse(Buffer.concat(chunks).toString()) ?? {}) as Wanted
  } catch (cause) {
    throw new UsageError('the body of the request must be JSON', { cause })
  }
}

/** `KIND/NAME` of the form that every page has. */
function foundPath({ searchParams }: URL): string {
  const [kind = '', name = ''] = (searchParams.get('object') ?? '').trim().split('/', 2)
  const namespace = (searchParams.get('namespace') ?? '').trim()
  return kind === '' || name === '' ? '/' : objectPath(kind, namespace === '' ? undefined : namespace, name)
}

interface Asset {
  type: string
  body: Buffer
  gzip: Buffer
}

interface Assets {
  /** Addresses, in the order in which pages name them. */
  styles: readonly string[]
  script: string
  get(path: string): Asset | undefined
}

const FOLDER = new URL('../assets/', import.meta.url)
const TYPES: Record<string, string> = { css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8' }
/** A later one wins where two rules weigh the same. */
const STYLES = ['base', 'frame', 'tables', 'forms', 'rows', 'facts', 'drawings', 'changes', 'narrow']

/** Reads the files that pages load. Their folder is named by their contents, so browsers keep them until they change. */
function loadAssets(): Assets {
  const files = readdirSync(FOLDER).sort()
  const bodies = files.map((file) => [file, readFileSync(new URL(file, FOLDER))] as const)
  const digest = createHash('sha256')
  for (const [file, body] of bodies) digest.update(file).update(body)
  const folder = `/assets/${digest.digest('base64url').slice(0, 16)}`
  const known = new Map<string, Asset>()
  for (const [file, body] of bodies) {
    const type = TYPES[file.split('.').at(-1) ?? '']
    if (type !== undefined) known.set(`${folder}/${file}`, { type, body, gzip: gzipSync(body, { level: 9 }) })
  }
  return {
    styles: STYLES.map((name) => `${folder}/${name}.css`),
    script: `${folder}/console.js`,
    get: (path) => known.get(path),
  }
}

const PAGES: [path: RegExp, page: PageOf][] = [
  [/^\/$/, overview],
  [/^\/queue$/, queuePage],
  [/^\/objects\/([^/]+)\/([^/]+)\/([^/]+)$/, objectPage],
  [/^\/preview\/([^/]+)\/([^/]+)\/([^/]+)$/, previewPage],
  [/^\/runs$/, runsPage],
  [/^\/runs\/latest$/, latestRunPage],
  [/^\/runs\/(\d+)$/, runPage],
  [/^\/runs\/(\d+)\/replay$/, replayPage],
  [/^\/events$/, eventsPage],
  [/^\/usage$/, usagePage],
  [/^\/dead$/, deadPage],
  [/^\/dead\/(\d+)$/, letterPage],
]

export interface Route {
  page: PageOf
  params: string[]
}

/** Undefined: there is no such page. */
export function routeOf(path: string): Route | undefined {
  for (const [pattern, page] of PAGES) {
    const match = pattern.exec(path)
    if (match) return { page, params: match.slice(1).map(decoded) }
  }
  return undefined
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}
