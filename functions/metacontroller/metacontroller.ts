import {
  type EventReport,
  type KubeObject,
  kind,
  type Reconciler,
  type ReconcilerManifest,
  reconciler,
  TerminalError,
} from 'fairlead'
import { composite, compositeDeclared, compositeResources } from './composite.ts'
import { CompositeController, DecoratorController } from './controller.ts'
import type { Served } from './declaration.ts'
import { decoratorDeclared, decoratorIn, decoratorResources, decorators } from './decorator.ts'
import { LAST_APPLIED } from './recreate.ts'

type Given = NonNullable<Reconciler['declaredBy']>['with']

/** The Reconcilers that an installation has made of a controller. */
const Installed = {
  ...kind({ group: 'fairlead.dev', version: 'v1alpha1', kind: 'Reconciler', plural: 'reconcilers' }),
  naming: 'spec.invoke.pull.with.object.metadata.name',
} as const

const INSTALL = 'fairlead install --adapter metacontroller'

interface Adapting {
  name: string
  of: typeof CompositeController
  resources: NonNullable<Reconciler['adapts']>['resources']
  declared: (controller: KubeObject, served: Served) => unknown
  declare: NonNullable<Reconciler['adapts']>['declare']
  made: NonNullable<Reconciler['adapts']>['made']
}

/**
 * Returns an adapter: a function that tells users of a controller what keeps it from being served, in an Event, because its
 * definition keeps no conditions. It also serves the functions that controllers declare.
 */
function adapter({ name, of, resources, declared, declare, made }: Adapting): Reconciler {
  const reporter = reconciler({
    name,
    for: of,
    related: [Installed],
    reconcile: ({ object, related }) => {
      const report = reportOn(object, related(Installed) as KubeObject[], { resources, declared })
      return report ? { events: [report] } : {}
    },
  })
  return { ...reporter, adapts: { ...of, resources, declare, made } }
}

function reportOn(
  controller: KubeObject,
  installed: readonly KubeObject[],
  { resources, declared }: Pick<Adapting, 'resources' | 'declared'>,
): EventReport | undefined {
  const given = installed.map(({ spec }) => (spec as ReconcilerManifest['spec']).invoke.pull?.with as Given | undefined)
  const found = given.find((one) => one?.object.kind === controller.kind)
  try {
    resources(controller)
    if (found === undefined) return warning('NotInstalled', `it is not served: ${INSTALL}`)
    const [now, before] = [controller, found.object].map((one) => JSON.stringify(declared(one, found.kinds)))
    return now === before
      ? undefined
      : warning('ControllerChanged', `it has changed since it was installed: ${INSTALL}`)
  } catch (error) {
    if (!(error instanceof TerminalError)) throw error
    return warning(error.reason, error.message)
  }
}

const warning = (reason: string, message: string): EventReport => ({ type: 'Warning', reason, message })

/** Either of its two ways to apply leaves its trace. */
const isOfMetacontroller = ({ metadata: { annotations = {}, managedFields } }: KubeObject): boolean =>
  annotations[LAST_APPLIED] !== undefined ||
  (Array.isArray(managedFields) &&
    managedFields.some(({ manager }: { manager?: unknown }) => manager === 'metacontroller'))

export const metacontroller: readonly Reconciler[] = [
  adapter({
    name: 'metacontroller',
    of: CompositeController,
    resources: compositeResources,
    declared: compositeDeclared,
    declare: (controller, served) => [composite(controller, served)],
    made: (child) => isOfMetacontroller(child) && decoratorIn(child) === undefined,
  }),
  adapter({
    name: 'metacontroller-decorator',
    of: DecoratorController,
    resources: decoratorResources,
    declared: decoratorDeclared,
    declare: decorators,
    made: (child, { metadata }) => isOfMetacontroller(child) && decoratorIn(child) === metadata.name,
  }),
]
