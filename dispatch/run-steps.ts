import type { Span } from '#events'

/** The steps of a run, in order, for timelines, metrics and logs. */
export type RunStep = { reconciler: string; key: string } & Partial<Span> &
  (
    | {
        step: 'started'
        /** The number of failed runs of this key since the last success. */
        attempt: number
        /** A timer fired: requeueAt, requeueAfterSeconds or backoff. */
        fired: boolean
        /** The run of this key before it never ended, because its process was lost. */
        cutShort?: boolean
        /** The time since the key was queued. */
        queuedMs: number
        /** After this time another run of the key may begin, unless the lease is renewed. */
        leaseUntil: Date
      }
    | {
        step: 'written'
        verb: 'create' | 'apply' | 'patch' | 'delete' | 'metadata' | 'status' | 'finalizers'
        /** The resource, e.g. `pods.v1`. */
        resource: string
        kind: string
        namespace: string | undefined
        name: string
        /** The version after the write. Undefined if the object is gone. */
        resourceVersion: string | undefined
        /** The duration of the request, without the wait for its turn. */
        ms: number
      }
    /** Fields that other managers had changed were set back. `isContested`: the managers fight over the fields. */
    | { step: 'takenBack'; isContested: boolean }
    /** The function was called to read its external system. */
    | { step: 'read'; result: 'success' | 'error'; ms: number }
    /** The function was called to perform an effect. `kind`: the kind of the effect. */
    | { step: 'performed'; kind: string; result: 'success' | 'error'; ms: number }
    /** A status was not sent, because the object changed before the turn of the request. The function decides again. */
    | { step: 'dropped' }
    /** The run stopped waiting for the function. */
    | { step: 'timedOut' }
    | { step: 'armed'; at: Date; why: 'requeue' | 'error' }
    /** The function and its writes have ended. The end of the run is not stored yet. */
    | {
        step: 'ended'
        /** The run has written nothing after this time, and another run of the key may have begun. */
        leaseUntil: Date
      }
    | {
        step: 'finished'
        /** The result: controller-runtime's names, and `terminal` and `fenced`. */
        result: 'success' | 'requeue_after' | 'error' | 'terminal' | 'fenced'
        ms: number
        message: string | undefined
      }
  )

export type RunObserver = (step: RunStep) => void
