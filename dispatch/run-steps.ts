import type { Span } from '#events'

/** What happened in a run, in order, as timelines, metrics and logs want it. */
export type RunStep = { reconciler: string; key: string } & Partial<Span> &
  (
    | {
        step: 'started'
        /** Failed runs of this key since the last success. */
        attempt: number
        /** A timer fired: requeueAt, requeueAfterSeconds or backoff. */
        fired: boolean
        /** The run of this key before it never ended: its process was lost. */
        cutShort?: boolean
        /** Since the key was queued. */
        queuedMs: number
        /** Another run of its key may begin then, unless the lease is renewed. */
        leaseUntil: Date
      }
    | {
        step: 'written'
        verb: 'create' | 'apply' | 'patch' | 'delete' | 'metadata' | 'status' | 'finalizers'
        /** `pods.v1` */
        resource: string
        kind: string
        namespace: string | undefined
        name: string
        /** After the write; undefined when the object is gone. */
        resourceVersion: string | undefined
        /** The request alone, without waiting for its turn. */
        ms: number
      }
    /** Fields that other managers had changed were set back. `isContested`: it is a fight. */
    | { step: 'takenBack'; isContested: boolean }
    /** The function was asked to read its external system. */
    | { step: 'read'; result: 'success' | 'error'; ms: number }
    /** The function was asked to perform an effect. `kind`: of the effect. */
    | { step: 'performed'; kind: string; result: 'success' | 'error'; ms: number }
    /** A status that was overtaken by a change while it waited for its turn: not sent, decided again. */
    | { step: 'dropped' }
    /** The function was not waited for any longer. */
    | { step: 'timedOut' }
    | { step: 'armed'; at: Date; why: 'requeue' | 'error' }
    /** The function and its writes are over; how the run ended is not stored yet. */
    | {
        step: 'ended'
        /** The run has written nothing after that, and another of its key may have begun. */
        leaseUntil: Date
      }
    | {
        step: 'finished'
        /** controller-runtime's names, and `terminal` and `fenced`. */
        result: 'success' | 'requeue_after' | 'error' | 'terminal' | 'fenced'
        ms: number
        message: string | undefined
      }
  )

export type RunObserver = (step: RunStep) => void
