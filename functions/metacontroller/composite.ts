import { type KubeObject, type Reconciler, TerminalError } from 'fairlead'
import { CompositeController, compositeSpec } from './controller.ts'
import { relatedOf } from './customize.ts'
import {
  type Asked,
  appliesOf,
  type Declared,
  functionOf,
  grantedRefs,
  isCollected,
  isRolling,
  Kinds,
  ofHooks,
  REVISIONS,
  reconcilerName,
  refOf,
  type Served,
  wantedOf,
} from './declaration.ts'
import { call } from './hook.ts'
import {
  answerOf,
  COMPOSITE_FIELDS,
  type Group,
  type HookAnswer,
  objectMap,
  type StatusOutcome,
  soonest,
  statusOutcome,
  TEN_YEARS_S,
} from './protocol.ts'
import { rolledOut } from './rolling.ts'
import { CONTROLLER_UID, childSelector, matches, selectorText } from './selector.ts'

/** Returns the resources that the controller names. Throws as compositeDeclared(). */
export function compositeResources(controller: KubeObject): ReturnType<typeof refOf>[] {
  const { parentResource, childResources, hooks } = compositeSpec(controller)
  const rolling = childResources.some(({ updateStrategy }) => isRolling(updateStrategy?.method)) ? [REVISIONS] : []
  return [...[parentResource, ...childResources, ...rolling].map(refOf), ...grantedRefs(controller, hooks)]
}

/** Throws a TerminalError, `NotOffered`, with each field that is not offered. */
export function compositeDeclared(controller: KubeObject, served: Served): Declared {
  const { parentResource, childResources, ...others } = compositeSpec(controller)
  const kinds = new Kinds(served)
  const { kind: primary, hasStatus } = kinds.of(parentResource, 'spec.parentResource')
  const owned = kinds.owned(childResources, 'spec.childResources')
  const related = kinds.related(controller, others.hooks)
  kinds.demandAll(controller)
  const { labelSelector, ignoreStatusChanges: ignoresStatus = false } = parentResource
  const selector = labelSelector && selectorText(labelSelector)
  return { primary, hasStatus, ...owned, related, selector, ignoresStatus, ...ofHooks(others) }
}

/** Returns the function that a CompositeController declares. `served` has the kinds of its resources. */
export function composite(controller: KubeObject, served: Served): Reconciler {
  const declared = compositeDeclared(controller, served)
  return functionOf({
    name: reconcilerName('composite', controller.metadata.name),
    controller,
    of: CompositeController,
    declared,
    again: (present) => compositeDeclared(present, served),
    keepsStatus: declared.hasStatus,
    decide: (asked) => decide(asked, declared),
  })
}

async function decide(asked: Asked, { primary, hasStatus }: Declared) {
  const { hookName, present, object, groups, revisions, run } = asked
  const { parentResource, childResources, generateSelector, hooks } = compositeSpec(present)
  const hook = hooks[hookName]
  if (hook?.webhook === undefined) return undefined
  const { webhook } = hook
  const selector = childSelector(object, generateSelector)
  const isSelected = (labels?: Record<string, string>) => matches(selector, labels)
  refuseToRelease(groups, isSelected)
  const generated: Record<string, string> = generateSelector ? { [CONTROLLER_UID]: object.metadata.uid ?? '' } : {}
  const ask = async (parent: KubeObject): Promise<HookAnswer> => {
    const request = {
      controller: present,
      parent,
      children: objectMap(groups, parent, hook),
      related: await relatedOf({ ...asked, object: parent }, hooks.customize, hook),
      finalizing: hookName === 'finalize',
    }
    return answerOf(hookName, hook, await call(hookName, webhook, request, run), COMPOSITE_FIELDS)
  }
  const complete = (children: readonly KubeObject[]) => {
    const labelled = children.map((child) => {
      const { metadata } = child
      const labels = { ...generated, ...metadata.labels }
      if (!isSelected(labels))
        throw new Error(
          `the labels of ${child.kind} ${metadata.name} of the answer do not match the selector of its parent`,
        )
      return { ...child, metadata: { ...metadata, labels } }
    })
    return wantedOf(asked, labelled, 'childResources')
  }
  const rolling = groups.flatMap(({ apiVersion, kind: of, method }, index) => {
    const { conditions = [] } = childResources[index]?.updateStrategy?.statusChecks ?? {}
    const apiGroup = apiVersion.split('/').slice(0, -1).join('')
    return isRolling(method) ? { apiGroup, kind: of, isInPlace: method === 'RollingInPlace', conditions } : []
  })
  const { group, resource } = primary
  const { fieldPaths = [] } = parentResource.revisionHistory ?? {}
  if (rolling.length > 0 && object.metadata.namespace === undefined)
    throw new TerminalError(
      `${object.kind} ${object.metadata.name} is in no namespace, and the revisions of a rolling update are: use the methods Recreate or InPlace`,
      { reason: 'RevisionsNeedNamespace' },
    )
  const rolled =
    rolling.length === 0
      ? undefined
      : await rolledOut({
          parent: object,
          resource: `${resource}.${group === '' ? 'core' : group}`,
          fieldPaths: fieldPaths.length > 0 ? fieldPaths : ['spec'],
          revisions,
          labels: { ...(generateSelector ? generated : templateLabels(object)), ...ofResource(primary) },
          children: groups.flatMap(({ objects }) => objects),
          rolling,
          now: run.now,
          ask,
          complete,
        })
  const answer = rolled?.answer ?? (await ask(object))
  const shown = hasStatus ? shownOf(statusOutcome(hookName, answer.status ?? {}, object.status), rolled?.condition) : {}
  // The finalizer goes before the children are managed: garbage collection deletes them.
  const told = { ...shown, ...(answer.events.length > 0 && { events: answer.events }) }
  if (hookName === 'finalize' && answer.finalized) return told
  const wanted = rolled ? answer.objects : complete(answer.objects)
  const { apply, again } = appliesOf(asked, wanted)
  const seconds = soonest(answer.resyncAfterSeconds, again)
  return {
    ...(!isCollected(object) && { apply: [...(rolled?.revisions ?? []), ...apply] }),
    ...told,
    ...(hookName === 'finalize' && { requeueAfter: TEN_YEARS_S }),
    ...(seconds > 0 && { requeueAfter: seconds }),
  }
}

/** Adds the condition of a rollout, in place of one of the hook. */
const shownOf = (shown: StatusOutcome, condition: StatusOutcome['conditions'][number] | undefined): StatusOutcome =>
  condition === undefined
    ? shown
    : { ...shown, conditions: [...shown.conditions.filter(({ type }) => type !== condition.type), condition] }

/** The labels by which Metacontroller finds revisions, where it goes on. */
const ofResource = ({ group, resource }: Declared['primary']): Record<string, string> => ({
  'metacontroller.k8s.io/apiGroup': group,
  'metacontroller.k8s.io/resource': resource,
})

function templateLabels({ spec }: KubeObject): Record<string, string> {
  const { template } = (spec ?? {}) as { template?: { metadata?: { labels?: Record<string, string> } } }
  return template?.metadata?.labels ?? {}
}

/** Metacontroller would release such a child. Without that, the hook would not know it, and it would be deleted. */
function refuseToRelease(groups: readonly Group[], isSelected: (labels?: Record<string, string>) => boolean): void {
  for (const { kind: of, objects } of groups)
    for (const { metadata } of objects)
      if (metadata.deletionTimestamp === undefined && !isSelected(metadata.labels))
        throw new TerminalError(
          `the labels of ${of} ${metadata.name} no longer match the selector of its parent, and to release a child is not offered: give it its labels back, or remove its owner reference`,
          { reason: 'ReleaseNotOffered' },
        )
}
