import type { HttpAnswer } from './http.ts'
import type { DescribedObject } from './types.ts'

/** By this an upload is known whose answer got lost. */
export const UPLOAD = 'fairlead-upload'

/** The object of an answer to HEAD. `prefix`: of the headers with its metadata. */
export function describedBy(key: string, { headers }: HttpAnswer, prefix: string): DescribedObject {
  const metadata = Object.entries(headers).flatMap(([name, value]) =>
    name.startsWith(prefix) ? [[name.slice(prefix.length), String(value)]] : [],
  )
  return { key, size: Number(headers['content-length']), metadata: Object.fromEntries(metadata) }
}

/**
 * Makes an upload visible. An answer may get lost although that was done: the object that is there tells by which upload
 * it came.
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
