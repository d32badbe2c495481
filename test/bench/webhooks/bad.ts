import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { Agent, request } from 'node:https'
import { connect as connectPlain, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'node:tls'
import { forgetPeakOf, peakMiBOf } from '../../support/usage.ts'
import { quantile } from '../median.ts'
import type { Figures, Scene } from './scenes.ts'
import { Site, siteOf } from './site.ts'

const GOOD_PER_SECOND = 50
const PHASE_MS = 3000
const LARGE_BYTES = 3 * 2 ** 20
const CONNECTIONS = 10_000
const CONNECTING = 250
/** Half a request has to be answered by then. */
const HALF_WITHIN_MS = 12_000
const HALVES = 50
const OTHERS_MS = 50
const LARGE_EVERY_MS = 400

const review = (uid: unknown, object: object) => ({
  apiVersion: 'admission.k8s.io/v1',
  kind: 'AdmissionReview',
  request: {
    uid,
    kind: { group: Site.group, version: Site.version, kind: Site.kind },
    resource: { group: Site.group, version: Site.version, resource: Site.resource },
    operation: 'UPDATE',
    userInfo: { username: 'bench' },
    object,
    oldObject: object,
    dryRun: true,
  },
})

/** Bad input of each sort, straight to one process, beside 50 good reviews a second. */
export async function bad({ place, replicas, webhook, say }: Scene): Promise<Figures> {
  const { pid } = await replicas.alone()
  forgetPeakOf(pid)
  const host = { host: '127.0.0.1', port: place.port, rejectUnauthorized: false }
  const agent = new Agent({ ...host, keepAlive: true })
  const post = async (body: string): Promise<{ code: number; said: string }> => {
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }
    const sent = request({ agent, method: 'POST', path: webhook.validatePath, headers })
    sent.end(body)
    const [answer] = (await once(sent, 'response')) as [IncomingMessage]
    return { code: answer.statusCode ?? 0, said: await text(answer) }
  }
  const small = siteOf('Site', 'good')
  let uid = 0
  /** Whether its answer has its own uid, and allows it. */
  const good = async (times: number[]): Promise<boolean> => {
    const own = `uid-${uid++}`
    const began = performance.now()
    const { said } = await post(JSON.stringify(review(own, small)))
    times.push(performance.now() - began)
    return said.includes(`"uid":"${own}"`) && said.includes('"allowed":true')
  }
  const figures: Figures = { wrongAnswers: 0, unclear: 0 }
  const told = new Set<string>()
  const add = (name: string, more: number) => (figures[name] = (figures[name] ?? 0) + more)
  const beside = async (name: string, happens: (isOver: () => boolean) => Promise<unknown>): Promise<void> => {
    const times: number[] = []
    const answered: Promise<boolean>[] = []
    const began = performance.now()
    const isOver = () => performance.now() - began > PHASE_MS
    const over = new AbortController()
    const happening = happens(isOver).finally(() => over.abort())
    for (let tick = 0; !over.signal.aborted || !isOver(); tick++) {
      await sleep(Math.max(0, began + (tick * 1000) / GOOD_PER_SECOND - performance.now()))
      answered.push(good(times).catch(() => false))
    }
    await happening
    add('wrongAnswers', (await Promise.all(answered)).filter((isRight) => !isRight).length)
    figures[`${name}P99`] = quantile(times, 0.99)
    figures[`${name}Longest`] = Math.max(...times)
  }
  /** Anything but a clear refusal or, for what may be right, an answer. */
  const clear = async (what: string, body: string, isAdmissible = false): Promise<void> => {
    const { code, said } = await post(body).catch((error: Error) => ({ code: 0, said: error.message }))
    const isRefused = code >= 400 || /"allowed":\s*false/.test(said)
    if (isRefused || (isAdmissible && code === 200)) return
    add('unclear', 1)
    if (!told.has(what)) say(`${what} is answered with ${code}: ${said.slice(0, 200).trim()}`)
    told.add(what)
  }
  await beside('rest', async () => undefined)
  const large = siteOf('Site', 'large')
  const [route] = large.spec.routes
  const each = JSON.stringify(route).length + 6
  large.spec.routes = Array.from({ length: LARGE_BYTES / each }, (_, index) => ({
    ...route!,
    path: `/${index}`,
    weight: 0,
  }))
  const largeBody = JSON.stringify(review('large', large))
  await beside('large', async (isOver) => {
    for (; !isOver(); await sleep(LARGE_EVERY_MS)) await clear('an object of 3 MiB', largeBody, true)
  })
  const odd = {
    'no JSON': '{',
    'another kind': JSON.stringify(review('u', { ...small, kind: 'Other' })),
    'no uid': JSON.stringify(review(undefined, small)),
    'a uid that is no text': JSON.stringify(review({ a: 1 }, small)),
    'no object': JSON.stringify({ ...review('u', small), request: { uid: 'u' } }),
    'another review': JSON.stringify({ ...review('u', small), kind: 'TokenReview' }),
  }
  await beside('odd', async (isOver) => {
    for (; !isOver(); await sleep(OTHERS_MS)) for (const [what, body] of Object.entries(odd)) await clear(what, body)
  })
  await beside('half', async () => {
    const halves = Array.from({ length: HALVES }, async () => {
      const socket = connect(host)
      socket.on('error', () => undefined)
      await once(socket, 'secureConnect')
      socket.write(`POST ${webhook.validatePath} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{`)
      const answer = once(socket, 'data').then(([data]) => String(data).split('\r\n')[0] ?? '')
      const said = await Promise.race([answer, sleep(HALF_WITHIN_MS, 'nothing', { ref: false })])
      socket.destroy()
      return said
    })
    const unanswered = (await Promise.all(halves)).filter((said) => !said.includes(' 4'))
    add('unclear', unanswered.length)
    if (unanswered.length > 0) say(`${unanswered.length} of ${HALVES} halves are answered with ${unanswered[0]}`)
  })
  const idle: Socket[] = []
  await beside('connections', async () => {
    for (let open = 0; open < CONNECTIONS; open += CONNECTING) {
      const more = Array.from({ length: CONNECTING }, () => connectPlain(place.port, '127.0.0.1'))
      for (const socket of more) socket.on('error', () => undefined)
      idle.push(...more)
      await Promise.all(more.map((socket) => once(socket, 'connect').catch(() => undefined)))
    }
  })
  for (const socket of idle) socket.destroy()
  agent.destroy()
  return { ...figures, memory: peakMiBOf(pid) }
}
