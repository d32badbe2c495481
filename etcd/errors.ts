/** Codes of gRPC that a caller may have to tell apart; etcd's other codes are coarse, so decide on `text`. */
export const GRPC = { unknown: 2, deadlineExceeded: 4, unavailable: 14 } as const

/** A call that etcd has refused, or that has no answer. */
export class EtcdError extends Error {
  override readonly name = 'EtcdError'
  readonly code: number
  /** The words of etcd, e.g. `etcdserver: member not found`. */
  readonly text: string

  constructor(call: string, code: number, text: string, cause?: unknown) {
    super(`${call}: ${text}`, { cause })
    this.code = code
    this.text = text
  }

  /** Nobody knows whether the call has had its effect: read before deciding. */
  get isUnknown(): boolean {
    return this.code === GRPC.deadlineExceeded || /timed out|connection lost/.test(this.text)
  }
}
