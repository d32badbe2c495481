import { expect, it } from 'vitest'
import { composite } from '#functions/metacontroller'
import { ConfigMap, type KubeObject, Pod, toInvoke } from '#sdk'
import { type Simulation, simulate } from '#testing'
import { CONFIG_MAPS, childOf, configMap, controllerOf, parentOf, SERVED, startHook } from './hooks.ts'

const PODS = [{ apiVersion: 'v1', resource: 'pods', updateStrategy: { method: 'Recreate' } }]
const pod = (spec: object, metadata: object = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'tom', ...metadata },
  spec,
})
const container = (fields: object = {}) => ({ name: 'c', image: 'a', ...fields })
const BASE = { containers: [container({ env: [{ name: 'A', value: '1' }] })] }

/** The uid of the pod after the hook has answered this, and after somebody else has changed the pod. */
async function uids(before: object, answers: object, edit: object = {}, metadata: object = {}) {
  let answer: object = { children: [pod(before, metadata)] }
  await using hook = await startHook((response) => void response.end(JSON.stringify(answer)))
  const controller = controllerOf(hook.url, { childResources: PODS })
  const world = simulate(composite(controller, SERVED), { objects: [parentOf(), controller] })
  const uid = () => world.list(Pod)[0]?.metadata.uid
  await world.runUntilIdle()
  const first = uid()
  world.patch(Pod, edit)
  await world.advance(60)
  answer = { children: [answers] }
  world.edit({ spec: { changed: true } })
  await world.runUntilIdle()
  expect(world.list(Pod)).toHaveLength(1)
  return [first, uid()]
}

it.each([
  ['the same answer', BASE, pod(BASE), {}, false],
  ['another value', BASE, pod({ containers: [container({ image: 'b' })] }), {}, true],
  ['a field that goes', BASE, pod({ containers: [container()] }), {}, true],
  ['an item that goes from a list by name', BASE, pod({ containers: [container({ env: [] })] }), {}, true],
  ['a label that comes', BASE, pod(BASE, { labels: { a: 'b' } }), {}, true],
  ['a field that somebody adds', BASE, pod(BASE), { spec: { nodeName: 'n' } }, false],
  [
    'an item that somebody adds to a list by name',
    BASE,
    pod(BASE),
    { spec: { containers: [{ ...BASE.containers[0] }, { name: 'sidecar', image: 's' }] } },
    false,
  ],
  [
    'a value that somebody changes',
    { ...BASE, priority: 1 },
    pod({ ...BASE, priority: 1 }),
    { spec: { priority: 2 } },
    true,
  ],
  ['a status', BASE, { ...pod(BASE), status: { phase: 'Running' } }, { status: { phase: 'Failed' } }, false],
  ['null in metadata, as Go writes it', BASE, pod(BASE, { creationTimestamp: null }), {}, false],
  ['a list of text in another order', { ...BASE, args: ['a', 'b'] }, pod({ ...BASE, args: ['b', 'a'] }), {}, true],
])('with the method Recreate, %s: another pod is made: %5$s', async (_, before, answer, edit, isRecreated) => {
  const [first, last] = await uids(before, answer, edit)
  expect(first).toBeDefined()
  expect(first !== last).toBe(isRecreated)
})

it('the annotation of the last answer is the text that Metacontroller writes: it recreates nothing after the way back', async () => {
  const data = { 'b.txt': '<a> & \u2028', 9: 'nine', 10: 'ten', A: 'capital' }
  await using hook = await startHook({
    children: [{ ...configMap('tom', { creationTimestamp: null }), kind: 'ConfigMap', data, status: {} }],
  })
  const childResources = [{ ...CONFIG_MAPS, updateStrategy: { method: 'Recreate' } }]
  const controller = controllerOf(hook.url, { childResources })
  const world = simulate(composite(controller, SERVED), { objects: [parentOf(), controller] })
  await world.runUntilIdle()
  const [{ metadata }] = world.list(ConfigMap) as [KubeObject]
  expect(metadata.annotations?.['metacontroller.k8s.io/last-applied-configuration']).toBe(
    String.raw`{"apiVersion":"v1","data":{"10":"ten","9":"nine","A":"capital","b.txt":"\u003ca\u003e \u0026 \u2028"},"kind":"ConfigMap","metadata":{"creationTimestamp":null,"labels":{"controller-uid":"CatSet/cats#1"},"name":"tom","namespace":"zoo"},"status":{}}`,
  )
})

it('a child whose value the API server stores in another form is recreated once a minute at most', async () => {
  await using hook = await startHook({ children: [pod({ ...BASE, cpu: '0.5' })] })
  const controller = controllerOf(hook.url, { childResources: PODS })
  const stored = (world: Simulation) => {
    if (world.list(Pod).some(({ spec }) => (spec as { cpu?: string }).cpu === '0.5'))
      world.patch(Pod, { spec: { cpu: '500m' } })
  }
  const world = simulate(composite(controller, SERVED), { objects: [parentOf(), controller], cluster: stored })
  await world.advance(150)
  expect(world.writes.filter(({ verb }) => verb === 'delete')).toHaveLength(2)
})

it('what Metacontroller has made and is not handed over yet is returned, and never left out to be deleted', async () => {
  const childResources = [{ ...CONFIG_MAPS, updateStrategy: { method: 'Recreate' } }]
  await using hook = await startHook({ children: [{ ...configMap('tom'), data: { purr: 'no' } }] })
  const object = parentOf()
  const controller = controllerOf(hook.url, { childResources })
  const theirs = childOf(object, configMap('tom'))
  const related = { 'CompositeController.v1alpha1.metacontroller.k8s.io': [controller], 'ConfigMap.v1': [theirs] }
  const input = { object, owned: {}, related, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const { signal } = new AbortController()
  const { apply } = await toInvoke(composite(controller, SERVED))(input, { log, signal })
  expect(apply).toMatchObject([{ metadata: { name: 'tom' }, data: { purr: 'no' } }])
})
