import type { HttpMessage } from '#events'

/** Returns the request as a command for a POSIX shell. */
export function curlCommand(url: string, { headers, body }: HttpMessage): string {
  const lines = [
    `curl --fail-with-body -sS -X POST ${quote(url)}`,
    ...Object.entries(headers).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
    `--data-binary ${quote(Buffer.from(body).toString())}`,
  ]
  return lines.join(' \\\n  ')
}

/** Quotes the text as one word. curl would read a leading `@` as the name of a file, but JSON never begins with it. */
const quote = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`
