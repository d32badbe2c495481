import type { KubeObject, Reconciler } from 'fairlead'
import { DecoratorController, decoratorSpec, type ResourceRule } from './controller.ts'
import { relatedOf } from './customize.ts'
import {
  type Asked,
  appliesOf,
  type Declared,
  functionOf,
  grantedRefs,
  isCollected,
  Kinds,
  ofHooks,
  reconcilerName,
  refOf,
  type Served,
  wantedOf,
} from './declaration.ts'
import { call } from './hook.ts'
import { answerOf, DECORATOR_FIELDS, objectMap, soonest, TEN_YEARS_S } from './protocol.ts'
import { matches, selectorText } from './selector.ts'

/** The annotation of attachments with the name of their controller. */
const OF_DECORATOR = 'metacontroller.k8s.io/decorator-controller'

/** Returns the name of the DecoratorController that has made the object. */
export const decoratorIn = ({ metadata: { annotations = {} } }: KubeObject): string | undefined =>
  annotations[OF_DECORATOR]

/** Returns the resources that the controller names. Throws as decoratorDeclared(). */
export function decoratorResources(controller: KubeObject): ReturnType<typeof refOf>[] {
  const { resources, attachments, hooks } = decoratorSpec(controller)
  return [...[...resources, ...attachments].map(refOf), ...grantedRefs(controller, hooks)]
}

/** Returns what a controller declares for each of its resources. Throws a TerminalError, `NotOffered`, with each field that is not offered. */
export function decoratorDeclared(controller: KubeObject, served: Served): Declared[] {
  const { resources, attachments, ...others } = decoratorSpec(controller)
  const kinds = new Kinds(served)
  const primaries = resources.map((rule, index) => kinds.of(rule, `spec.resources[${index}]`))
  const owned = kinds.owned(attachments, 'spec.attachments')
  const related = kinds.related(controller, others.hooks)
  kinds.demandAll(controller)
  return primaries.map(({ kind: primary, hasStatus }, index) => {
    const { labelSelector, ignoreStatusChanges: ignoresStatus = false } = resources[index] as ResourceRule
    const selector = labelSelector && selectorText(labelSelector)
    return { primary, hasStatus, ...owned, related, selector, ignoresStatus, ...ofHooks(others) }
  })
}

/** Returns the functions that a DecoratorController declares, one for each of its resources. */
export function decorators(controller: KubeObject, served: Served): Reconciler[] {
  const { name } = controller.metadata
  const all = decoratorDeclared(controller, served)
  return all.map((declared) => {
    const { group, resource } = declared.primary
    const isSame = ({ primary }: Declared) => primary.group === group && primary.resource === resource
    return functionOf({
      name: reconcilerName('decorator', name, resource, ...(group === '' ? [] : [group.replaceAll('.', '-')])),
      controller,
      of: DecoratorController,
      declared,
      again: (present) => decoratorDeclared(present, served).find(isSame),
      keepsStatus: false,
      writes: ['Metadata'],
      isOwn: (child) => decoratorIn(child) === name,
      decide: (asked) => decide(asked, declared),
    })
  })
}

async function decide(asked: Asked, { primary }: Declared) {
  const { hookName, present, object, groups, run } = asked
  const { resources, hooks } = decoratorSpec(present)
  const hook = hooks[hookName]
  const rule = resources.find((one) => {
    const { group, resource } = refOf(one)
    return group === primary.group && resource === primary.resource
  })
  const { matchAnnotations: matchLabels, matchExpressions } = rule?.annotationSelector ?? {}
  if (hook?.webhook === undefined || !matches({ matchLabels, matchExpressions }, object.metadata.annotations))
    return undefined
  const request = {
    controller: present,
    object,
    attachments: objectMap(groups, object, hook),
    related: await relatedOf(asked, hooks.customize, hook),
    finalizing: hookName === 'finalize',
  }
  const text = await call(hookName, hook.webhook, request, run)
  const answer = answerOf(hookName, hook, text, DECORATOR_FIELDS)
  if (answer.status !== undefined)
    throw new Error(`the ${hookName} hook answered with a status, which a DecoratorController is not offered to write`)
  const kept = { labels: answer.labels, annotations: answer.annotations }
  const told = {
    ...((kept.labels || kept.annotations) && { metadata: kept }),
    ...(answer.events.length > 0 && { events: answer.events }),
  }
  if (hookName === 'finalize' && answer.finalized) return told
  const annotated = answer.objects.map((one) => {
    const annotations = { ...one.metadata.annotations, [OF_DECORATOR]: present.metadata.name }
    return { ...one, metadata: { ...one.metadata, annotations } }
  })
  const wanted = wantedOf(asked, annotated, 'attachments')
  const { apply, again } = appliesOf(asked, wanted)
  const seconds = soonest(answer.resyncAfterSeconds, again)
  return {
    ...(!isCollected(object) && { apply }),
    ...told,
    ...(hookName === 'finalize' && { requeueAfter: TEN_YEARS_S }),
    ...(seconds > 0 && { requeueAfter: seconds }),
  }
}
