/** The gRPC codes that a caller may have to distinguish. etcd's other codes are coarse, so decide on `text`. */
export const GRPC = { unknown: 2, deadlineExceeded: 4, unavailable: 14 } as const

/** Thrown if etcd refused a call or did not answer. */
export class EtcdError extends Error {
  override readonly name = 'EtcdError'
  readonly code: number
  /** The error text of etcd, such as `etcdserver: member not found`. */
  readonly text: string

  constructor(call: string, code: number, text: string, cause?: unknown) {
    super(`${call}: ${text}`, { cause })
    this.code = code
    this.text = text
  }

  /** True: the call may or may not have taken effect. Read the state before deciding. */
  get isUnknown(): boolean {
    return this.code === GRPC.deadlineExceeded || /timed out|connection lost/.test(this.text)
  }
}
