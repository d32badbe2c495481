import { StoreError } from './errors.ts'
import type { ErrorOf, HttpClient, Prepare } from './http.ts'
import type { Range } from './types.ts'

export const rangeHeader = ({ start, length }: Range): string =>
  `bytes=${start}-${length === undefined ? '' : start + length - 1}`

/** Reads all bytes of an object. Throws if the connection ends early. */
export async function* received(
  http: HttpClient,
  prepare: Prepare,
  what: string,
  errorOf: ErrorOf,
): AsyncGenerator<Uint8Array> {
  const message = await http.stream(prepare, what)
  const { statusCode: status = 0, headers } = message
  if (status !== 200 && status !== 206) {
    const chunks = (await message.toArray()) as Buffer[]
    throw errorOf({ status, headers, text: Buffer.concat(chunks).toString() }, what)
  }
  const expected = Number(headers['content-length'] ?? Number.NaN)
  let size = 0
  try {
    for await (const chunk of message as AsyncIterable<Buffer>) {
      size += chunk.length
      yield chunk
    }
  } catch (cause) {
    throw new StoreError('unavailable', `${what}: the connection was lost after ${size} of ${expected} bytes`, {
      cause,
    })
  }
  if (!Number.isNaN(expected) && size !== expected)
    throw new StoreError('unavailable', `${what}: ended after ${size} of ${expected} bytes`)
}
