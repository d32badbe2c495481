import type { ServerResponse } from 'node:http'
import { composite } from '#functions/metacontroller'
import type { KubeObject } from '#sdk'
import { type Given, outcomeOf } from '#testing'
import { type HttpReceiver, startHttpReceiver } from '../../support/http-receiver.ts'

/** Kinds of the API server, as its discovery gives them. */
export const SERVED = [
  { group: 'ctl.example.com', version: 'v1', resource: 'catsets', kind: 'CatSet', hasStatus: true },
  { group: 'ctl.example.com', version: 'v1', resource: 'hermits', kind: 'Hermit', hasStatus: false },
  { group: 'ctl.example.com', version: 'v1', resource: 'cages', kind: 'Cage', hasStatus: true },
  {
    group: 'metacontroller.k8s.io',
    version: 'v1alpha1',
    resource: 'controllerrevisions',
    kind: 'ControllerRevision',
    hasStatus: true,
  },
  { group: '', version: 'v1', resource: 'pods', kind: 'Pod', hasStatus: true },
  { group: '', version: 'v1', resource: 'namespaces', kind: 'Namespace', hasStatus: true },
  { group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap', hasStatus: false },
  { group: 'apps', version: 'v1', resource: 'statefulsets', kind: 'StatefulSet', hasStatus: true },
]

export const CATSETS = { apiVersion: 'ctl.example.com/v1', resource: 'catsets' }
export const CONFIG_MAPS = { apiVersion: 'v1', resource: 'configmaps' }

/** A real webhook. `answers`: JSON, text, or what writes the response; the last one is repeated. */
export async function startHook(...answers: (object | string | ((response: ServerResponse) => void))[]) {
  const receiver = await startHttpReceiver((_, response) => {
    const answer = answers[Math.min(receiver.received.length, answers.length) - 1] ?? {}
    if (typeof answer === 'function') return answer(response)
    response.end(typeof answer === 'string' ? answer : JSON.stringify(answer))
  })
  return receiver
}

export const bodyOf = ({ received }: HttpReceiver, index = -1): Record<string, Record<string, unknown>> =>
  JSON.parse(received.at(index)?.body.toString() ?? 'null')

/** A CompositeController whose sync hook is at this address. */
export const controllerOf = (url: string, spec: object = {}, name = 'catset-controller'): KubeObject => ({
  apiVersion: 'metacontroller.k8s.io/v1alpha1',
  kind: 'CompositeController',
  metadata: { name, uid: 'controller-1' },
  spec: {
    parentResource: CATSETS,
    childResources: [{ ...CONFIG_MAPS, updateStrategy: { method: 'InPlace' } }],
    generateSelector: true,
    hooks: { sync: { webhook: { url } } },
    ...spec,
  },
})

export const parentOf = (fields: Partial<KubeObject> = {}, metadata: object = {}): KubeObject => ({
  apiVersion: 'ctl.example.com/v1',
  kind: 'CatSet',
  metadata: { name: 'cats', namespace: 'zoo', uid: 'parent-1', generation: 3, ...metadata },
  spec: {},
  ...fields,
})

export const configMap = (name: string, fields: object = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, ...fields },
  data: { purr: 'yes' },
})

/** The child as the cluster has it. */
export const childOf = (
  parent: KubeObject,
  child: KubeObject,
  labels: object = { 'controller-uid': 'parent-1' },
): KubeObject => ({
  ...child,
  metadata: {
    namespace: 'zoo',
    uid: `uid-of-${child.metadata.name}`,
    labels: labels as Record<string, string>,
    ownerReferences: [
      {
        apiVersion: parent.apiVersion,
        kind: parent.kind,
        name: parent.metadata.name,
        uid: parent.metadata.uid ?? '',
        controller: true,
      },
    ],
    ...child.metadata,
  },
})

/** Returns what the controller decides on a parent, with the controller in the cluster. */
export const decisionOf = (
  controller: KubeObject,
  object: KubeObject,
  { others = [], ...given }: Partial<Given> = {},
) => outcomeOf(composite(controller, SERVED), { object, others: [controller, ...others], ...given })
