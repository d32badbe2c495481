import type { BridgeObserver, ChangeTracer } from '#bridge'
import { type KubeObject, resourceName } from '#contracts'
import type { RunObserver, RunStep } from '#dispatch'
import { type Span, shownKey, spanAfter, traceparentOf } from '#events'

/** A finished span, as it is exported. */
export interface FinishedSpan extends Span {
  name: string
  kind: 'internal' | 'producer' | 'consumer' | 'client'
  /** Epoch milliseconds. */
  start: number
  end: number
  attributes: Record<string, string | number | undefined>
  /** The error; left out after success. */
  error?: string | undefined
}

interface Tracing extends ChangeTracer {
  bridge: NonNullable<BridgeObserver['published']>
  run: RunObserver
}

/** The destination and the sampling of traces. */
interface TracingOptions {
  /** Receives finished spans. Undefined: spans are not exported, but events and logs still contain their ids. */
  keep: ((span: FinishedSpan) => void) | undefined
  /** Returns whether a new trace is kept. */
  sample: (traceId: string) => boolean
  /** Epoch milliseconds. */
  now: () => number
}

/** Makes spans from the reports of bridge and dispatcher: change → queue → run → API requests. */
export function createTracing({ keep, sample, now }: TracingOptions): Tracing {
  const begun = new WeakMap<KubeObject, Span>()
  const waiting = new Map<string, { queuedAt: number; startedAt: number }>()

  return {
    begin(object) {
      const span = spanAfter(undefined, false)
      const kept = { ...span, sampled: keep !== undefined && sample(span.traceId) }
      if (kept.sampled) begun.set(object, kept)
      return traceparentOf(kept)
    },
    bridge({ ref, verb, object, outcome, ms }) {
      const span = begun.get(object)
      if (span === undefined || outcome !== 'stored') return
      const end = now()
      const attributes = { ...ofObject(object), 'k8s.resource': resourceName(ref), 'fairlead.verb': verb }
      keep?.({ ...span, name: `publish ${resourceName(ref)}`, kind: 'producer', start: end - ms, end, attributes })
    },
    run(step) {
      if (keep === undefined) return
      const id = `${step.reconciler} ${step.key}`
      const at = now()
      if (step.step === 'started') waiting.set(id, { queuedAt: at - step.queuedMs, startedAt: at })
      const span = spanOf(step)
      if (step.step === 'written' && span?.sampled) keep(requestSpan(span, step, at))
      if ((step.step === 'read' || step.step === 'performed') && span?.sampled) keep(externalSpan(span, step, at))
      if (step.step !== 'finished') return
      const times = waiting.get(id)
      waiting.delete(id)
      if (times === undefined || !span?.sampled) return
      const attributes = { 'fairlead.reconciler': step.reconciler, 'fairlead.key': shownKey(step.key) }
      const { queuedAt, startedAt } = times
      const queued = { ...span, spanId: spanAfter(undefined, true).spanId, attributes }
      keep({ ...queued, name: `queue ${step.reconciler}`, kind: 'consumer', start: queuedAt, end: startedAt })
      const failed = step.result === 'error' || step.result === 'terminal' || step.result === 'fenced'
      keep({
        ...span,
        name: `run ${step.reconciler}`,
        kind: 'internal',
        start: startedAt,
        end: startedAt + step.ms,
        attributes: { ...attributes, 'fairlead.result': step.result },
        error: failed ? (step.message ?? step.result) : undefined,
      })
    },
  }
}

function requestSpan(span: Span, step: RunStep & { step: 'written' }, end: number): FinishedSpan {
  const { verb, resource, namespace, name, ms } = step
  const attributes = { 'k8s.resource': resource, 'k8s.namespace.name': namespace, 'k8s.object.name': name }
  return { ...span, name: `${verb} ${resource}`, kind: 'client', start: end - ms, end, attributes }
}

function externalSpan(span: Span, step: RunStep & { step: 'read' | 'performed' }, end: number): FinishedSpan {
  const { reconciler, ms, result } = step
  const name = step.step === 'read' ? `read external ${reconciler}` : `effect ${step.kind}`
  const error = result === 'error' ? { error: 'failed' } : {}
  return {
    ...span,
    name,
    kind: 'client',
    start: end - ms,
    end,
    attributes: { 'fairlead.reconciler': reconciler },
    ...error,
  }
}

function spanOf({ traceId, spanId, parentSpanId, sampled }: RunStep): Span | undefined {
  if (traceId === undefined || spanId === undefined || sampled === undefined) return undefined
  return { traceId, spanId, sampled, ...(parentSpanId !== undefined && { parentSpanId }) }
}

const ofObject = ({ metadata }: KubeObject) => ({
  'k8s.namespace.name': metadata.namespace,
  'k8s.object.name': metadata.name,
  'k8s.object.uid': metadata.uid,
})
