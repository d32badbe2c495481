/** As RFC 3986 has it: all but letters, digits and -._~ is escaped. */
export const encode = (text: string): string =>
  encodeURIComponent(text).replaceAll(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`)

/** A key as the path of a URL: slashes stay. */
export const encodePath = (key: string): string => key.split('/').map(encode).join('/')

/** Sorted by name. */
export const encodeQuery = (query: Record<string, string>): string =>
  Object.keys(query)
    .sort()
    .map((name) => `${encode(name)}=${encode(query[name] ?? '')}`)
    .join('&')
