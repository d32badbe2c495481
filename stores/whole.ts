import { StoreError } from './errors.ts'
import type { Store } from './types.ts'

/** Lost connections in a row, without a byte between them. */
const LOST_AT_MOST = 5

/** All bytes of an object. After a lost connection the rest is asked for, from where it was lost. */
export async function* whole(store: Store, key: string, signal?: AbortSignal): AsyncGenerator<Uint8Array> {
  let start = 0
  for (let lost = 0; ; ) {
    try {
      for await (const chunk of store.get(key, { signal, ...(start > 0 && { range: { start } }) })) {
        yield chunk
        start += chunk.length
        lost = 0
      }
      return
    } catch (error) {
      signal?.throwIfAborted()
      if (!(error instanceof StoreError) || error.reason !== 'unavailable' || ++lost > LOST_AT_MOST) throw error
    }
  }
}
