import type { HttpMessage } from '#events'

/** The same request as a command for a POSIX shell. */
export function curlCommand(url: string, { headers, body }: HttpMessage): string {
  const lines = [
    `curl --fail-with-body -sS -X POST ${quote(url)}`,
    ...Object.entries(headers).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
    `--data-binary ${quote(Buffer.from(body).toString())}`,
  ]
  return lines.join(' \\\n  ')
}

/** One word, whatever it has in it. A leading `@` would be the name of a file to curl, but JSON has none. */
const quote = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`
