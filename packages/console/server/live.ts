import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { pause } from '#primitives'
import { awayIn } from '../data/data.ts'
import { html } from '../html.ts'
import { noticeOf } from '../pages/layout.ts'
import { NotFoundError, type Page } from '../pages/page.ts'

/** Between two looks, a tab pauses for so many times as long as the look took, but never for longer than a beat. */
const SHARE = 10
/** Also while a server is away: a look then takes long because it waits, and not because of a load. */
const EVERY_MS = 1000
/** A tab that hears nothing for longer takes the stream for broken. */
const BEAT_MS = 5000

/** What a page shows, without what counts up by itself. */
const settled = (text: string): string => text.replaceAll(/(<time[^>]*>)[^<]*/g, '$1')

/**
 * One stream of a tab: the regions of its page that have changed, some times a second at most. However much happens, a
 * tab that reads slowly is sent the newest state and no queue of older ones.
 */
export async function follow(response: ServerResponse, look: () => Promise<Page>, signal: AbortSignal): Promise<void> {
  begin(response, 200, { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
  const sent = new Map<string, string>()
  let beatAt = 0
  while (!signal.aborted) {
    const startedAt = performance.now()
    const { regions, everyMs = EVERY_MS } = await regionsOf(look)
    const changed = Object.entries(regions).filter(([id, region]) => sent.get(id) !== settled(region))
    for (const [id, region] of changed) sent.set(id, settled(region))
    const now = performance.now()
    const isSilent = changed.length === 0
    if (!isSilent || now - beatAt > BEAT_MS) {
      beatAt = now
      const text = isSilent ? ': still here\n\n' : `data: ${JSON.stringify(Object.fromEntries(changed))}\n\n`
      if (!response.write(text)) await once(response, 'drain', { signal })
    }
    const restMs = regions['notice'] ? EVERY_MS : Math.min(BEAT_MS, (now - startedAt) * SHARE)
    await pause(Math.max(everyMs, restMs), signal)
  }
}

/** Returns only a notice while a server is away, so that the regions stay as they are. */
async function regionsOf(look: () => Promise<Page>): Promise<{ regions: Record<string, string>; everyMs?: number }> {
  try {
    const { regions, everyMs } = await look()
    const texts = Object.entries(regions).map(([id, region]) => [id, region.text] as const)
    return { regions: { notice: '', ...Object.fromEntries(texts) }, everyMs }
  } catch (error) {
    const away = awayIn(error)
    if (away) return { regions: { notice: noticeOf(away).text } }
    if (error instanceof NotFoundError)
      return {
        regions: {
          notice: html`<div class="note warn"><p><strong>It is not there any more.</strong> ${error.message}</p></div>`
            .text,
        },
      }
    throw error
  }
}

/** Nothing but files of this origin is loaded, nothing is framed, nothing is sent elsewhere. */
const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
}

export function begin(response: ServerResponse, status: number, headers: Record<string, string>): ServerResponse {
  const again = status === 503 ? { 'retry-after': '3' } : {}
  return response.writeHead(status, { ...HEADERS, 'cache-control': 'no-store', ...again, ...headers })
}

export const sendHtml = (response: ServerResponse, status: number, text: string): void =>
  void begin(response, status, { 'content-type': 'text/html; charset=utf-8' }).end(text)

export const sendJson = (response: ServerResponse, status: number, body: unknown): void =>
  void begin(response, status, { 'content-type': 'application/json' }).end(JSON.stringify(body))

export const redirect = (response: ServerResponse, location: string, headers: Record<string, string> = {}): void =>
  void begin(response, 303, { location, ...headers }).end()
