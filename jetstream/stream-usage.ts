import { ERR, JetStreamError } from './errors.ts'

export interface StreamUsage {
  bytes: number
  /** Undefined: no limit, or the stream drops its oldest messages at the limit. */
  maxBytes: number | undefined
}

/** The part of the answer of `$JS.API.STREAM.INFO` that is used. */
export interface StreamAnswer {
  ts: string
  state: { last_seq: number; bytes: number }
  config: { discard: string; max_bytes: number }
}

export const usageIn = ({ state, config }: StreamAnswer): StreamUsage => ({
  bytes: state.bytes,
  maxBytes: config.discard === 'new' && config.max_bytes > 0 ? config.max_bytes : undefined,
})

export function undefinedIfNoStream(error: unknown): undefined {
  if (!(error instanceof JetStreamError) || error.errCode !== ERR.streamNotFound) throw error
}
