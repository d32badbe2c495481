import type { HttpAnswer } from './http.ts'
import type { DescribedObject } from './types.ts'

/** The metadata that identifies an upload, so that an upload whose answer got lost can be recognized. */
export const UPLOAD = 'fairlead-upload'

/** Returns the object in an answer to HEAD. `prefix` is the beginning of the headers with its metadata. */
export function describedBy(key: string, { headers }: HttpAnswer, prefix: string): DescribedObject {
  const metadata = Object.entries(headers).flatMap(([name, value]) =>
    name.startsWith(prefix) ? [[name.slice(prefix.length), String(value)]] : [],
  )
  return { key, size: Number(headers['content-length']), metadata: Object.fromEntries(metadata) }
}

/**
 * Makes an upload visible. If the answer got lost, the metadata of the stored object show whether this upload made it.
 */
export async function publish(
  commit: () => Promise<void>,
  mark: string,
  head: () => Promise<DescribedObject | undefined>,
): Promise<void> {
  try {
    await commit()
  } catch (error) {
    const isOurs = (await head().catch(() => undefined))?.metadata[UPLOAD] === mark
    if (!isOurs) throw error
  }
}
