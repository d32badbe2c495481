import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { type ReconcilerSpec, reconcilerSpec } from './reconciler.ts'
import { parseFieldSelector, parseSelector } from './selector.ts'

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
  const wrong = wrongSelector(parsed.data) ?? wrongUrl(parsed.data) ?? wrongConfig(parsed.data)
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

function wrongConfig({ external, serviceAccount }: ReconcilerSpec): string | undefined {
  if (external?.config === undefined || serviceAccount !== undefined) return undefined
  return 'spec.external.config: its values are read as the service account: give spec.serviceAccount'
}

const refused = (message: string): Refused => ({ reason: 'InvalidSpec', message })

/** Returns the URL without parts that may be credentials: user, password, query and fragment. */
export function shownUrl(text: string): string {
  const url = URL.parse(text)
  if (url !== null && /^https?:$/.test(url.protocol)) return url.origin + url.pathname
  return text.replace(/^.*@/s, '…@').replace(/[?#].*$/s, '…')
}

/** The label of a Reconciler that names its shard. */
export const SHARD_LABEL = 'fairlead.dev/shard'

/** The reason of the condition Synced after a shard has released the Reconciler. */
export const RELEASED = 'Released'

/** Returns the shard that serves the Reconciler; '' is the installation without a shard. */
export const shardOf = ({ metadata }: Pick<KubeObject, 'metadata'>): string => metadata.labels?.[SHARD_LABEL] ?? ''

export const nameOfShard = (shard: string): string =>
  shard === '' ? 'the installation without a shard' : `shard ${shard}`

/**
 * Returns the shard whose bridges have taken up the Reconciler and have not released it, by its status. Undefined: no
 * shard. Versions without shards wrote no field `shard`, so their Reconcilers belong to the shard ''.
 */
export function holderOf({ status }: Pick<KubeObject, 'status'>): string | undefined {
  const { conditions = [], shard = '' } = (status ?? {}) as Held
  const synced = conditions.find(({ type }) => type === 'Synced')
  return synced === undefined || synced.reason === RELEASED ? undefined : shard
}

interface Held {
  conditions?: { type: string; reason?: string }[]
  shard?: string
}

/** A version of a function that has answered. */
export interface Revision {
  name: string
  /** When it was recorded, RFC 3339. */
  at: string
}

export const isRevision = (text: string): boolean => text.length >= 1 && text.length <= 253

/** Returns the revisions in the status of a Reconciler, in the order in which they were recorded. */
export function revisionsOf({ status }: Pick<KubeObject, 'status'>): Revision[] {
  const { revisions = [] } = (status ?? {}) as { revisions?: Revision[] }
  return revisions
}

/**
 * Returns the revision for which every object has to run again: the revision that the author has set, else the newest
 * if several are recorded.
 */
export function wantedRevision(object: KubeObject, { revision }: ReconcilerSpec): string | undefined {
  if (revision !== undefined) return revision
  const recorded = revisionsOf(object)
  return recorded.length > 1 ? recorded.at(-1)?.name : undefined
}

/**
 * Returns an ID of the objects that map to a Reconciler's keys, of the incarnation of the Reconciler, and of the
 * revision of its function. If a watch cursor has this ID, every object that concerns the Reconciler is stored under
 * the right owner, and its keys are queued.
 */
export function coverageId(object: KubeObject, spec: ReconcilerSpec): string {
  const { metadata } = object
  const { for: primary, owns, related, finalize, formerFinalizers, identity, patches, kindPaths } = spec
  const named = [identity && { identity }, formerFinalizers && { formerFinalizers }, patches && { patches }]
  const onDemand = kindPaths && { kindPaths }
  const optional = [wantedRevision(object, spec), finalize ? 'finalize' : undefined, ...named, onDemand]
  const asked = JSON.stringify([metadata.uid, primary, owns, related, ...optional.filter((one) => one !== undefined)])
  return `${metadata.name}@${hash('sha256', asked, 'base64url').slice(0, 16)}`
}
