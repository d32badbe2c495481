import { type KubeObject, TerminalError, z } from 'fairlead'
import { type Hook, labelSelector } from './controller.ts'
import { call } from './hook.ts'
import { type Group, objectMap, recordIn } from './protocol.ts'
import { matches } from './selector.ts'

/** The annotation of a controller with the kinds that its customize hook may name: `configmaps.v1, deployments.v1.apps`. */
export const RELATED = 'fairlead.dev/related'

/** A kind, and the objects of it that a run has read. */
export interface RelatedGroup extends Group {
  resource: string
}

interface Asking {
  present: KubeObject
  object: KubeObject
  related: readonly RelatedGroup[]
  run: Parameters<typeof call>[3]
}

const rule = z.strictObject({
  apiVersion: z.string().min(1),
  resource: z.string().min(1),
  labelSelector: labelSelector.nullish(),
  namespaceSelector: labelSelector.nullish(),
  namespace: z.string().nullish(),
  names: z.array(z.string()).nullish(),
})
const rules = z.array(rule).nullish()

type Rule = z.output<typeof rule>

/**
 * Asks the customize hook, and returns the objects that its rules select, as `sync` gets them. Throws a TerminalError for a kind
 * that the controller does not grant, and an Error for a rule that Metacontroller refuses, or that has an unknown field: it
 * would select more.
 */
export async function relatedOf(
  { present, object, related, run }: Asking,
  customize: Hook | undefined,
  of: Pick<Hook, 'version'>,
): Promise<Record<string, Record<string, KubeObject>>> {
  if (customize?.webhook === undefined) return {}
  const text = await call('customize', customize.webhook, { controller: present, parent: object }, run)
  const namespaces = related.find((one) => one.apiVersion === 'v1' && one.resource === 'namespaces')?.objects
  const groups = rulesIn(text, customize).map((one) => {
    const group = groupOf(one, related)
    const selects = selectorOf(one, customize, object.metadata.namespace, namespaces)
    return { ...group, objects: group.objects.filter(selects) }
  })
  const merged = [...Map.groupBy(groups, ({ apiVersion, kind }) => `${apiVersion} ${kind}`).values()]
  return objectMap(
    merged.map((same) => ({ ...(same[0] as Group), objects: shown(same, object, of) })),
    object,
    of,
  )
}

/** The names of v1 have no namespace, so that objects of other namespaces are left out. */
function shown(groups: readonly Group[], { metadata: { namespace } }: KubeObject, { version }: Pick<Hook, 'version'>) {
  const objects = groups.flatMap((one) => one.objects)
  if (version === 'v2' || namespace === undefined) return objects
  return objects.filter(({ metadata }) => metadata.namespace === undefined || metadata.namespace === namespace)
}

function rulesIn(text: string, hook: Hook): Rule[] {
  const refuse = (why: string): never => {
    throw new Error(`the customize hook answered ${why}`)
  }
  const answer = recordIn(text, hook, ['relatedResources'], refuse)
  const [unknown] = Object.keys(answer).filter((field) => field !== 'relatedResources')
  if (unknown !== undefined && answer['relatedResources'] === undefined)
    return refuse(`with ${JSON.stringify(unknown)} and without "relatedResources"`)
  const { success, data, error } = rules.safeParse(answer['relatedResources'])
  if (success) return data ?? []
  const [{ path, message } = { path: [], message: '' }] = error.issues
  return refuse(`with ${['relatedResources', ...path].join('.')}: ${message}`)
}

function groupOf({ apiVersion, resource }: Rule, related: readonly RelatedGroup[]): RelatedGroup {
  const found = related.find((one) => one.apiVersion === apiVersion && one.resource === resource)
  if (found !== undefined) return found
  const [version = '', ...group] = apiVersion.split('/').reverse()
  const name = [resource, version, ...group].join('.')
  throw notGranted(name, `the customize hook answered with a rule for ${resource} of ${apiVersion}`)
}

const notGranted = (name: string, what: string): TerminalError =>
  new TerminalError(
    `${what}, which the controller may not read: add ${name} to its annotation ${RELATED}, and then fairlead install --adapter metacontroller`,
    { reason: 'KindNotGranted' },
  )

/** Returns what a rule selects. In v1, a parent in a namespace has related objects of that namespace, and cluster-scoped ones. */
function selectorOf(
  { labelSelector: labels, namespaceSelector, namespace, names, ...rule }: Rule,
  { version }: Pick<Hook, 'version'>,
  home: string | undefined,
  namespaces: readonly KubeObject[] | undefined,
): (object: KubeObject) => boolean {
  const refuse = (why: string): never => {
    throw new Error(`the rule of the customize hook for ${rule.resource} has ${why}`)
  }
  const isNamed = names !== undefined && names !== null && names.length > 0
  const isAtHome = version === 'v1' && home !== undefined
  if (isNamed && (labels || namespaceSelector)) return refuse('names beside a selector')
  if (namespace && namespaceSelector) return refuse('a namespace beside a namespaceSelector')
  if (isAtHome && namespaceSelector)
    return refuse('a namespaceSelector, which a parent in a namespace may have in version v2 alone')
  if (isAtHome && namespace && namespace !== home)
    return refuse(`the namespace ${namespace}, which is not that of the parent, in version v1`)
  if (namespaceSelector && namespaces === undefined)
    throw notGranted('namespaces.v1', `the rule of the customize hook for ${rule.resource} has a namespaceSelector`)
  const selected = namespaceSelector
    ? namespaces?.filter(({ metadata }) => matches(namespaceSelector, metadata.labels))
    : undefined
  const within = selected && new Set(selected.map(({ metadata }) => metadata.name))
  const only = namespace || (isAtHome ? home : undefined)
  return ({ metadata }) => {
    if (metadata.namespace === undefined && within !== undefined)
      return refuse('a namespaceSelector, and its objects are cluster-scoped')
    return (
      (metadata.namespace === undefined || only === undefined || metadata.namespace === only) &&
      (within === undefined || within.has(metadata.namespace ?? '')) &&
      (!isNamed || names.includes(metadata.name)) &&
      (!labels || matches(labels, metadata.labels))
    )
  }
}
