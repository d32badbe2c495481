import { expect, it } from 'vitest'
import type { Invoke } from '#contracts'
import { metacontroller as adapters } from '#functions/metacontroller'
import { type Reconciler, toInvoke } from '#sdk'
import { outcomeOf } from '#testing'
import { isolation } from '../../../cli/process/isolation.ts'
import { CONFIG_MAPS, configMap, controllerOf, parentOf, SERVED } from './hooks.ts'

const [metacontroller] = adapters as [Reconciler, Reconciler]
const log = { debug() {}, info() {}, warn() {}, error() {} }
const { signal } = new AbortController()
const input = { object: parentOf(), owned: {}, related: {}, attempt: 2, now: '2030-01-01T00:00:00Z', finalizing: false }
const given = { object: controllerOf('http://hook'), kinds: SERVED, part: 0 }

it('the adapter serves what a controller declares, here and in a process of its own', async () => {
  const apart = isolation([])('metacontroller', () => Promise.reject(new Error('run beside the others')))
  const calls: Invoke[] = [toInvoke(metacontroller), apart]
  for (const invoke of calls) {
    const called = invoke(input, { signal, log, suspect: true, with: given })
    await expect(called).resolves.toMatchObject({ events: [{ reason: 'ControllerGone' }] })
  }
})

const installed = (controller = controllerOf('http://hook')) => ({
  apiVersion: 'fairlead.dev/v1alpha1',
  kind: 'Reconciler',
  metadata: { name: 'composite-catset-controller' },
  spec: { invoke: { pull: { function: 'metacontroller', with: { object: controller, kinds: SERVED, part: 0 } } } },
})

it.each([
  ['is installed', controllerOf('http://hook'), [installed()], undefined],
  ['has another webhook', controllerOf('http://other'), [installed()], undefined],
  ['is not installed', controllerOf('http://hook'), [], 'NotInstalled'],
  ['another one is installed', controllerOf('http://hook', {}, 'other'), [installed()], 'NotInstalled'],
  [
    'has other children',
    controllerOf('http://hook', { childResources: [CONFIG_MAPS] }),
    [installed()],
    'ControllerChanged',
  ],
  ['has what is not offered', controllerOf('http://hook', { endpointConfigs: [] }), [installed()], 'NotOffered'],
])('a controller that %s: the Event on it', async (_, object, others, reason) => {
  const { events } = await outcomeOf(metacontroller, { object, others })
  expect(events?.map((event) => event.reason)).toEqual(reason && [reason])
})

const [, decorator] = adapters
const TRACE = { 'metacontroller.k8s.io/last-applied-configuration': '{}' }
const OF = { 'metacontroller.k8s.io/decorator-controller': 'tagger' }
const MANAGED = [{ manager: 'metacontroller' }]
it.each([
  ['a child by its annotation', { annotations: TRACE }, [true, false]],
  ['a child by its manager', { managedFields: MANAGED }, [true, false]],
  ['an attachment of this controller', { annotations: { ...TRACE, ...OF } }, [false, true]],
  ['an attachment by its manager', { annotations: OF, managedFields: MANAGED }, [false, true]],
  ['an object of others', { annotations: OF, managedFields: [{ manager: 'kubectl' }] }, [false, false]],
  ['an object without a trace', {}, [false, false]],
])('%s is handed over to its CompositeController, and to its DecoratorController: %j, %j', (_, metadata, expected) => {
  const controller = controllerOf('http://hook', {}, 'tagger')
  const child = configMap('tom', metadata)
  expect([metacontroller, decorator].map((one) => one?.adapts?.made(child, controller))).toEqual(expected)
})
