/** Escapes a text as in RFC 3986: all characters but letters, digits and -._~. */
export const encode = (text: string): string =>
  encodeURIComponent(text).replaceAll(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`)

/** Encodes a key as the path of a URL. Slashes stay. */
export const encodePath = (key: string): string => key.split('/').map(encode).join('/')

/** Encodes a query, sorted by name. */
export const encodeQuery = (query: Record<string, string>): string =>
  Object.keys(query)
    .sort()
    .map((name) => `${encode(name)}=${encode(query[name] ?? '')}`)
    .join('&')
