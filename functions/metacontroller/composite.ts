import { type KubeObject, type Reconciler, TerminalError } from 'fairlead'
import { CompositeController, compositeSpec } from './controller.ts'
import { relatedOf } from './customize.ts'
import {
  type Asked,
  type Declared,
  functionOf,
  grantedRefs,
  isCollected,
  Kinds,
  ofHooks,
  reconcilerName,
  refOf,
  type Served,
  TEN_YEARS_S,
  wantedOf,
} from './declaration.ts'
import { call } from './hook.ts'
import { answerOf, COMPOSITE_FIELDS, type Group, objectMap, statusOutcome } from './protocol.ts'
import { CONTROLLER_UID, childSelector, matches, selectorText } from './selector.ts'

/** Returns the resources that the controller names. Throws as compositeDeclared(). */
export function compositeResources(controller: KubeObject): ReturnType<typeof refOf>[] {
  const { parentResource, childResources, hooks } = compositeSpec(controller)
  return [...[parentResource, ...childResources].map(refOf), ...grantedRefs(controller, hooks)]
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

async function decide(asked: Asked, { hasStatus }: Declared) {
  const { hookName, present, object, groups, run } = asked
  const { generateSelector, hooks } = compositeSpec(present)
  const hook = hooks[hookName]
  if (hook?.webhook === undefined) return undefined
  const selector = childSelector(object, generateSelector)
  const isSelected = (labels?: Record<string, string>) => matches(selector, labels)
  refuseToRelease(groups, isSelected)
  const request = {
    controller: present,
    parent: object,
    children: objectMap(groups, object, hook),
    related: await relatedOf(asked, hooks.customize, hook),
    finalizing: hookName === 'finalize',
  }
  const text = await call(hookName, hook.webhook, request, run)
  const answer = answerOf(hookName, hook, text, COMPOSITE_FIELDS)
  const shown = hasStatus ? statusOutcome(hookName, answer.status ?? {}, object.status) : {}
  // The finalizer goes before the children are managed: garbage collection deletes them.
  if (hookName === 'finalize' && answer.finalized) return shown
  const labelled = answer.objects.map((child) => {
    const { metadata } = child
    const generated: Record<string, string> = generateSelector ? { [CONTROLLER_UID]: object.metadata.uid ?? '' } : {}
    const labels = { ...generated, ...metadata.labels }
    if (!isSelected(labels))
      throw new Error(
        `the labels of ${child.kind} ${metadata.name} of the answer do not match the selector of its parent`,
      )
    return { ...child, metadata: { ...metadata, labels } }
  })
  const wanted = wantedOf(asked, labelled, 'childResources')
  return {
    ...(!isCollected(object) && { apply: wanted }),
    ...shown,
    ...(hookName === 'finalize' && { requeueAfter: TEN_YEARS_S }),
    ...(answer.resyncAfterSeconds > 0 && { requeueAfter: answer.resyncAfterSeconds }),
  }
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
