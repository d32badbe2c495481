import { createHmac } from 'node:crypto'

/** A storage account and one of its two keys, in base64. */
export interface AbsAccount {
  account: string
  key: string
}

/** The signed standard headers, in the order of the signature. */
const STANDARD = [
  'content-encoding',
  'content-language',
  'content-length',
  'content-md5',
  'content-type',
  'date',
  'if-modified-since',
  'if-match',
  'if-none-match',
  'if-unmodified-since',
  'range',
]

export interface AbsRequest {
  method: string
  url: URL
  /** The headers, with names in lower case. */
  headers: Record<string, string>
  body?: Uint8Array | undefined
}

/** Returns the headers of the request with the authorization of the scheme SharedKey. */
export function sharedKey(
  { method, url, headers, body }: AbsRequest,
  { account, key }: AbsAccount,
): Record<string, string> {
  // Since API version 2015, an empty body has an empty length in the signature.
  const all: Record<string, string> = { ...headers, 'content-length': body?.length ? String(body.length) : '' }
  const own = Object.keys(headers).filter((name) => name.startsWith('x-ms-'))
  const query = [...url.searchParams].map(([name, value]) => `${name.toLowerCase()}:${value}`)
  const text = [
    method,
    ...STANDARD.map((name) => all[name] ?? ''),
    ...own.sort().map((name) => `${name}:${headers[name]?.trim()}`),
    [`/${account}${url.pathname}`, ...query.sort()].join('\n'),
  ].join('\n')
  const signature = createHmac('sha256', Buffer.from(key, 'base64')).update(text).digest('base64')
  return { ...headers, authorization: `SharedKey ${account}:${signature}` }
}
