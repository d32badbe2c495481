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
  /** Of the Reconciler. */
  name: string
  spec: ReconcilerSpec
  url: string
  access?: FunctionAccess | undefined
  /** Names the cluster in `source`. */
  cluster: string
  now: () => Date
  random: () => number
  /** After so many calls in a row that nothing answered: why. */
  unreachable?: (why: string) => void
  /** After each answer, whatever it says. */
  answered?: () => void
}

export interface HttpFunction {
  invoke: Invoke
  /** Ends its connections. */
  close(): void
}

/** One that starts or is replaced is away for some calls. */
const UNREACHABLE_FROM = 5
/** Pauses while nothing answers at all: no object's doing, so no object's attempts are counted for it. */
const AWAY_BACKOFF = { initialSeconds: 0.25, maxSeconds: 15, jitter: 0.2 }

/** A function behind a URL: a Knative Service, or anything else that answers as docs/http-functions.md says. */
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

  /** While others were answered, the function was there: then the failure is this object's own. */
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
