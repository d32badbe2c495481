import type { KubeObject } from '#contracts'
import type { ReconcilerSituation, Relative, Row, Situation } from '#inspect'

export const NOW = '2026-01-01T12:00:00.000Z'
export const ago = (seconds: number): string => new Date(Date.parse(NOW) - seconds * 1000).toISOString()
export const ahead = (seconds: number): string => ago(-seconds)

const WEBSITES = { group: 'example.com', version: 'v1', resource: 'websites' }
const DEPLOYMENTS = { group: 'apps', version: 'v1', resource: 'deployments', kind: 'Deployment' }
const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap' }

type Said = [type: string, status: string, reason?: string, message?: string]
const conditions = (...said: Said[]) =>
  said.map(([type, status, reason = type, message = '']) => ({
    type,
    status,
    reason,
    message,
    lastTransitionTime: ago(180),
  }))

/** Served, watched, and as its author wants it. */
export function reconciler(spec: object = {}, said: Said[] = [], name = 'website'): KubeObject {
  const defaults: Said[] = [
    ['Synced', 'True', 'Watching'],
    ['Ready', 'True', 'Serving'],
  ]
  const kept = defaults.filter(([type]) => said.every(([other]) => other !== type))
  return {
    apiVersion: 'fairlead.dev/v1alpha1',
    kind: 'Reconciler',
    metadata: { name },
    spec: {
      for: { ...WEBSITES, kind: 'Website' },
      owns: [DEPLOYMENTS],
      related: [{ ...CONFIG_MAPS, byName: 'spec.configMapName' }],
      invoke: { pull: {} },
      serviceAccount: { name: 'fairlead-website', namespace: 'fairlead-system' },
      ...spec,
    },
    status: { conditions: conditions(...kept, ...said.filter(([, status]) => status !== 'absent')) },
  }
}

export function website(
  metadata: object = {},
  said: Said[] = [['Ready', 'True', 'Running']],
  more: object = {},
): KubeObject {
  return {
    apiVersion: 'example.com/v1',
    kind: 'Website',
    metadata: { name: 'hello', namespace: 'default', uid: 'u1', resourceVersion: '7', generation: 2, ...metadata },
    spec: {},
    status: { observedGeneration: 2, conditions: conditions(...said) },
    ...more,
  }
}

export const row = (row: Partial<Row> & Pick<Row, 'state'>): Row => ({
  reconciler: 'website',
  namespace: 'default',
  name: 'hello',
  lane: 'high',
  since: ago(4),
  attempt: 0,
  ...row,
})

export function relative(kind: string, name: string, status?: object): Relative {
  const ref =
    kind === 'Deployment' ? DEPLOYMENTS : kind === 'ConfigMap' ? CONFIG_MAPS : { ...CONFIG_MAPS, resource: 'pods' }
  const { kind: _, ...plain } = ref
  const object = { apiVersion: 'v1', kind, metadata: { name, namespace: 'default' }, status }
  return { kind, ref: plain, namespace: 'default', name, ...(status !== undefined && { object }) }
}

/** What is given; undefined: not known. */
export type Given<T> = { [Field in keyof T]?: T[Field] | undefined }

const known = <T extends object>(given: Given<T>): T =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as T

/** The Reconciler of the website in a healthy situation. */
export const served = (one: Given<ReconcilerSituation> = {}): ReconcilerSituation =>
  known<ReconcilerSituation>({
    object: reconciler(),
    rows: [],
    isServed: true,
    missingRights: [],
    owned: [],
    named: [],
    ...one,
  })

export const situation = (given: Given<Situation> = {}): Situation =>
  known<Situation>({
    now: NOW,
    target: { kind: 'Website', ref: WEBSITES, namespace: 'default', name: 'hello' },
    isKindServed: true,
    object: website(),
    storedVersion: '7',
    elsewhere: [],
    isNamespaceTerminating: false,
    reconcilers: [served()],
    finalizers: ['fairlead.dev/website'],
    events: [],
    letters: [],
    ...given,
  })
