import type { EventReport, KubeObject, ObjectMeta } from '#sdk'
import type { Chart } from './chart.ts'
import { isTrue } from './go.ts'
import type { HookEvent } from './hooks.ts'
import type { Watch } from './watches.ts'

/** The prefix of the annotations of operator-sdk and helm-operator-plugins. */
const PREFIX = 'helm.sdk.operatorframework.io/'
export const PERIOD = `${PREFIX}reconcile-period`
export const UNINSTALL_WAIT = `${PREFIX}uninstall-wait`
/** The label that operator-sdk sets on each object of a release. */
export const CHART_LABEL = `${PREFIX}chart`
/** What Helm sets on each object of a release, and looks for before it changes one that another has made. */
export const MANAGED_BY = { 'app.kubernetes.io/managed-by': 'Helm' }
export const RELEASE_NAME = 'meta.helm.sh/release-name'
export const RELEASE_NAMESPACE = 'meta.helm.sh/release-namespace'
/** What operator-sdk sets on an object without an owner reference. */
export const PRIMARY = 'operator-sdk/primary-resource'
export const PRIMARY_TYPE = 'operator-sdk/primary-resource-type'
export const HOOKS_DISABLED: Record<HookEvent, string> = {
  install: `${PREFIX}install-disable-hooks`,
  upgrade: `${PREFIX}upgrade-disable-hooks`,
  delete: `${PREFIX}uninstall-disable-hooks`,
}

export const isAnnotated = ({ annotations }: ObjectMeta, name: string): boolean => isTrue(annotations?.[name])

const NO_HISTORY = 'there is no history of releases, but one of runs'
/** Annotations without an effect here, and what happens instead. */
const NOT_OFFERED: Record<string, string> = {
  [`${PREFIX}upgrade-force`]: 'give a kind that cannot be changed the strategy Recreate, in "kinds" of helmFunctions()',
  [`${PREFIX}rollback-force`]: 'nothing is rolled back: what could be written stays, and the rest is tried again',
  [`${PREFIX}install-description`]: NO_HISTORY,
  [`${PREFIX}upgrade-description`]: NO_HISTORY,
  [`${PREFIX}uninstall-description`]: NO_HISTORY,
}

const MOST_PLACES = 5
/** The limit of an outcome. */
const MOST_EVENTS = 20

/** What a user should know of an installation or an upgrade. */
export function eventsOf({ watch, chart }: { watch: Watch; chart: Chart }, { metadata }: KubeObject): EventReport[] {
  const warning = (reason: string, message: string): EventReport => ({ type: 'Warning', reason, message })
  // Not the value: it may come from a Secret.
  const overrides = Object.entries(watch.overrides).map(([path, text]) =>
    warning('OverrideValuesInUse', `Chart value "${path}" overridden to "${text}" by operator's watches.yaml`),
  )
  const annotations = Object.keys(metadata.annotations ?? {}).flatMap((name) => {
    const advice = NOT_OFFERED[name]
    return advice === undefined
      ? []
      : [warning('AnnotationNotOffered', `the annotation ${name} has no effect: ${advice}`)]
  })
  const places = chart.unstable.slice(0, MOST_PLACES).map(({ place, name, advice }) => `${place}: ${name}: ${advice}`)
  const more = chart.unstable.length - places.length
  const unstable = more > 0 ? [...places, `and ${more} more`] : places
  const all = [
    ...(unstable.length > 0 ? [warning('UnstableTemplate', unstable.join('; '))] : []),
    ...annotations,
    ...overrides,
  ]
  if (all.length <= MOST_EVENTS) return all
  const shown = all.slice(0, MOST_EVENTS - 1)
  return [
    ...shown,
    warning(
      'OverrideValuesInUse',
      `${all.length - shown.length} more values are overridden by operator's watches.yaml`,
    ),
  ]
}
