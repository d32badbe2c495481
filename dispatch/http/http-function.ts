import { apiVersionOf, EVENT_TYPES, type Invoke, type KubeObject, REVISION_HEADER, type ResourceRef } from '#contracts'
import { type CloudEvent, toHttp } from '#events'
import { resourcePath } from '#kube'
import { backoffMs } from '#queue'
import { FunctionError } from '#reconcile'
import { isRevision, RECONCILERS, type ReconcilerSpec } from '#spec'
import { credentialsOf, type FunctionAccess } from './function-access.ts'
import { returnedIn } from './http-answer.ts'
import { Poster } from './http-post.ts'

export interface HttpFunctionOptions {
  /** The name of the Reconciler. */
  name: string
  spec: ReconcilerSpec
  url: string
  access?: FunctionAccess | undefined
  /** The name of the cluster in `source`. */
  cluster: string
  now: () => Date
  random: () => number
  /** Called with the reason after several calls in a row without an answer. */
  unreachable?: (why: string) => void
  /** Called after each answer with any content. */
  answered?: () => void
}

export interface HttpFunction {
  invoke: Invoke
  /** Closes its connections. */
  close(): void
}

/**
 * The number of calls in a row without an answer before the function counts as unreachable. A function that starts or
 * is replaced misses some calls.
 */
const UNREACHABLE_FROM = 5
/** The pauses while the function does not answer. The objects are not the cause, so their attempts are not counted. */
const AWAY_BACKOFF = { initialSeconds: 0.25, maxSeconds: 15, jitter: 0.2 }

/** Returns a function behind a URL: a Knative Service, or any server that follows docs/http-functions.md. */
export function httpFunction(options: HttpFunctionOptions): HttpFunction {
  const { name, spec, url, access, cluster, now, random, unreachable, answered } = options
  const poster = new Poster(url, credentialsOf(access))
  let lastAnswer = 0
  let away = 0

  const invoke: Invoke = async (input, { signal, traceparent, answeredBy }) => {
    const ask = input.ask ?? 'reconcile'
    const event = eventAbout(input.object, EVENT_TYPES[ask].request)
    const { headers, body } = toHttp({
      ...event,
      time: now().toISOString(),
      data: input,
      ...(traceparent && { traceparent }),
    })
    const began = performance.now()
    try {
      const answer = await poster.post({
        headers: { ...headers, prefer: 'reply', ...(traceparent && { traceparent }) },
        body,
        signal,
        isRepeatable: ask !== 'perform',
      })
      const returned = returnedIn(answer, { name, ask, finalizing: input.finalizing, now: now() })
      noteAnswer()
      const revision = answer.headers[REVISION_HEADER]
      if (typeof revision === 'string' && isRevision(revision)) answeredBy?.(revision)
      return returned
    } catch (error) {
      if (!(error instanceof FunctionError) || !error.isAway) {
        if (!signal.aborted) noteAnswer()
        throw error
      }
      throw judged(error, began)
    }
  }

  function noteAnswer(): void {
    away = 0
    lastAnswer = performance.now()
    answered?.()
  }

  /**
   * Returns the error with its consequence. If other calls were answered meanwhile, the function is reachable, and the
   * failure counts for this object.
   */
  function judged(error: FunctionError, began: number): FunctionError {
    if (lastAnswer > began)
      return new FunctionError(error.message, { afterSeconds: error.afterSeconds, isAway: false, cause: error })
    const afterSeconds = error.afterSeconds ?? backoffMs(away, AWAY_BACKOFF, random) / 1000
    if (++away === UNREACHABLE_FROM) unreachable?.(error.message)
    return new FunctionError(error.message, { afterSeconds, isAway: true, cause: error.cause })
  }

  function eventAbout(object: KubeObject | null, type: string): CloudEvent {
    const { for: primary } = spec
    return {
      specversion: '1.0',
      id: crypto.randomUUID(),
      source: `https://${cluster}/apis/${apiVersionOf(RECONCILERS)}/${RECONCILERS.resource}/${name}`,
      type,
      datacontenttype: 'application/json',
      ...(object && subjectOf(primary, object)),
    }
  }

  return { invoke, close: () => poster.close() }
}

function subjectOf(ref: ResourceRef, { metadata: { namespace, name } }: KubeObject) {
  return {
    subject: resourcePath(ref, namespace, name),
    partitionkey: `${ref.group}/${ref.resource}/${namespace ?? ''}/${name}`,
  }
}
