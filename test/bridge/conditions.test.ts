import { expect, it } from 'vitest'
import { refusedCondition, servedCondition, withTransition } from '../../bridge/conditions.ts'
import type { ResourceStatus } from '../../bridge/types.ts'
import type { FailureKind } from '../../bridge/watch-state.ts'
import { configMaps, reconciler, reconcilerObject, widgets } from './objects.ts'

const served = reconciler('widget', { for: widgets, owns: [configMaps] })

const status = (covers: string[], kind?: FailureKind): ResourceStatus => ({
  resource: '',
  namespace: undefined,
  latestResourceVersion: undefined,
  heldBackSince: undefined,
  phase: kind ? 'waiting' : 'watching',
  since: new Date(0),
  synced: covers.length > 0,
  covers,
  resourceVersion: undefined,
  lastEventAt: undefined,
  open: true,
  unansweredSince: undefined,
  heardAt: undefined,
  failingSince: undefined,
  unconfirmed: 0,
  failure: kind && { kind, message: kind },
})

it.each<[string, ResourceStatus | undefined, string]>([
  ['Watching, when everything is covered for it', status([served.coverageId]), 'Watching'],
  ['Watching, while a watch is about to go on', status([served.coverageId], 'unreachable'), 'Watching'],
  ['Listing, while it is only covered for others', status(['other@1']), 'Listing'],
  ['Listing, before anything is known', undefined, 'Listing'],
  ['ResourceNotFound, when its definition is gone', status([served.coverageId], 'absent'), 'ResourceNotFound'],
  ['Rejected, when the server refuses the request itself', status([served.coverageId], 'rejected'), 'Rejected'],
  ['Forbidden, when the watch is not allowed', status([served.coverageId], 'forbidden'), 'Forbidden'],
])('is %s', (_name, owned, reason) => {
  const condition = servedCondition(served, ({ resource }) =>
    resource === 'configmaps' ? (owned ? [owned] : []) : [status([served.coverageId])],
  )
  expect(condition).toMatchObject({ reason, status: reason === 'Watching' ? 'True' : 'False' })
})

it('does not wait for namespaces in which only other Reconcilers ask for the resource', () => {
  const there = reconciler('widget', { for: { ...widgets, namespaces: ['a'] } })
  const statusesOf = () => [
    { ...status([there.coverageId]), namespace: 'a' },
    { ...status(['other@1'], 'forbidden'), namespace: 'b' },
  ]
  expect(servedCondition(there, statusesOf)).toMatchObject({ reason: 'Watching' })
})

it('keeps the time of its last transition while the status stays', () => {
  const refused = refusedCondition({
    name: 'x',
    reason: 'InvalidSpec',
    message: 'm',
    object: reconcilerObject('x', { for: widgets }),
  })
  const first = withTransition(refused, undefined, new Date(1000))
  expect(withTransition({ ...refused, message: 'other' }, first, new Date(2000)).lastTransitionTime).toBe(
    first.lastTransitionTime,
  )
  expect(withTransition({ ...refused, status: 'True' }, first, new Date(2000)).lastTransitionTime).not.toBe(
    first.lastTransitionTime,
  )
})
