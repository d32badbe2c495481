import { StoreError } from './errors.ts'
import type { Store } from './types.ts'

/** The number of lost connections in a row, without a byte between them, after which the read fails. */
const LOST_AT_MOST = 5

/** Reads all bytes of an object. After a lost connection, requests the rest from where it was lost. */
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
