import type { ServerResponse } from 'node:http'

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
