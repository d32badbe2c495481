import type { KubeObject } from '#contracts'
import { parseFieldSelector } from './field-selector.ts'
import { type ReconcilerSpec, reconcilerSpec } from './reconciler.ts'
import { parseSelector } from './selector.ts'
import { shownUrl } from './shown-url.ts'

/** The reason why a Reconciler cannot be served, for its conditions. */
export interface Refused {
  reason: 'InvalidSpec'
  message: string
}

/** The name of a consumer has at most 255 characters (nats-server). The lane takes five of them. */
export const LONGEST_RECONCILER_NAME = 250

/**
 * Returns the specification of a Reconciler object, or the reason why it cannot be served. Bridge and dispatcher share
 * this parser, so that the conditions Synced and Ready never disagree.
 */
export function readReconciler(object: KubeObject): ReconcilerSpec | Refused {
  const { name } = object.metadata
  if (name.length > LONGEST_RECONCILER_NAME)
    return refused(`metadata.name: has ${name.length} characters, give it ${LONGEST_RECONCILER_NAME} at most`)
  const parsed = reconcilerSpec.safeParse(object.spec)
  if (!parsed.success)
    return refused(
      parsed.error.issues.map(({ path, message }) => `${['spec', ...path].join('.')}: ${message}`).join('; '),
    )
  const wrong = wrongSelector(parsed.data) ?? wrongUrl(parsed.data)
  return wrong === undefined ? parsed.data : refused(wrong)
}

export const isRefused = (read: object): read is Refused => 'reason' in read

function wrongSelector({ for: primary, related }: ReconcilerSpec): string | undefined {
  const parts = [
    { path: 'spec.for', ...primary },
    ...related.map((one, index) => ({ path: `spec.related.${index}`, ...one })),
  ]
  for (const { path, selector = '', fieldSelector = '' } of parts) {
    const wrong =
      failureOf(`${path}.selector`, () => parseSelector(selector)) ??
      failureOf(`${path}.fieldSelector`, () => parseFieldSelector(fieldSelector))
    if (wrong !== undefined) return wrong
  }
  return undefined
}

function failureOf(path: string, parse: () => unknown): string | undefined {
  try {
    parse()
    return undefined
  } catch (error) {
    return `${path}: ${(error as Error).message}`
  }
}

function wrongUrl({ invoke }: ReconcilerSpec): string | undefined {
  const url = invoke.http?.url
  if (url === undefined || (/^https?:\/\//.test(url) && URL.canParse(url))) return undefined
  return `spec.invoke.http.url: ${shownUrl(url)} is not an http:// or https:// address`
}

const refused = (message: string): Refused => ({ reason: 'InvalidSpec', message })
