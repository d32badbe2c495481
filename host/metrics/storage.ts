import { Gauge, type Registry } from 'prom-client'
import { shared } from './shared.ts'

interface StreamUsage {
  bytes: number
  /** Undefined: the stream rejects no message because of its size. */
  maxBytes: number | undefined
}

/**
 * Reports the bytes in the streams and their limits, read at each scrape. Every process reports the same values. A stream
 * that does not exist has no value. `maxBytes`: the storage that NATS has for all streams; left out if it is unknown.
 */
export function storageGauges(
  registry: Registry,
  streams: readonly string[],
  usageOf: (stream: string) => Promise<StreamUsage | undefined>,
  maxBytes?: number,
): void {
  const asked = shared(() => Promise.all(streams.map(async (stream) => ({ stream, usage: await usageOf(stream) }))))
  const gauge = (name: string, help: string, valueOf: (usage: StreamUsage) => number | undefined) => {
    const one: Gauge = new Gauge({
      name,
      help,
      labelNames: ['stream'],
      registers: [registry],
      async collect() {
        one.reset()
        // Another gauge reports that NATS does not answer.
        for (const { stream, usage } of await asked().catch(() => [])) {
          const value = usage && valueOf(usage)
          if (value !== undefined) one.set({ stream }, value)
        }
      },
    })
  }
  gauge('fairlead_stream_bytes', 'Bytes in the stream, in each replica', ({ bytes }) => bytes)
  gauge('fairlead_stream_max_bytes', 'The size at which the stream rejects messages', (usage) => usage.maxBytes)
  if (maxBytes === undefined) return
  const storage = new Gauge({
    name: 'fairlead_storage_max_bytes',
    help: 'Bytes that NATS has for all streams (FAIRLEAD_STORAGE_MAX_BYTES)',
    registers: [registry],
  })
  storage.set(maxBytes)
}
