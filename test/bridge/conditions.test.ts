import { describe, expect, it } from 'vitest'
import { troubles } from '#bridge'
import { overlapsOf, refusedCondition, servedCondition, withTransition } from '../../bridge/conditions.ts'
import type { ResourceStatus } from '../../bridge/types.ts'
import type { FailureKind } from '../../bridge/watch-state.ts'
import { configMaps, pods, reconciler, reconcilerObject, widgets } from './objects.ts'

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

const gadgets = { ...widgets, resource: 'gadgets', kind: 'Gadget' }
const inNamespaces = (...namespaces: string[]) => ({ ...widgets, namespaces })
const messages = (...reconcilers: ReturnType<typeof reconciler>[]): Record<string, string> =>
  Object.fromEntries([...overlapsOf(reconcilers)].map(([{ name }, { message }]) => [name, message]))

it('an overlap names the other Reconciler and the common kinds, on both', () => {
  const a = reconciler('a', { for: widgets, owns: [configMaps, pods] })
  const b = reconciler('b', { for: { ...widgets, version: 'v2' }, owns: [pods] })
  const rest =
    'Each one prunes and repairs only what it has created; a name that two of them want stays with the first.'
  expect(messages(b, a)).toEqual({
    a: `other Reconcilers for widgets.example.com own the same kinds: b (pods). ${rest}`,
    b: `other Reconcilers for widgets.example.com own the same kinds: a (pods). ${rest}`,
  })
})

it.each([
  ['one Reconciler alone', [{ for: widgets, owns: [pods] }]],
  [
    'other primaries',
    [
      { for: widgets, owns: [pods] },
      { for: gadgets, owns: [pods] },
    ],
  ],
  [
    'other owned kinds',
    [
      { for: widgets, owns: [pods] },
      { for: widgets, owns: [configMaps] },
    ],
  ],
  [
    'kinds that are only related',
    [
      { for: widgets, owns: [pods] },
      { for: widgets, related: [pods] },
    ],
  ],
  [
    'other namespaces',
    [
      { for: inNamespaces('x'), owns: [pods] },
      { for: inNamespaces('y', 'z'), owns: [pods] },
    ],
  ],
])('%s: no overlap', (_, specs) => {
  expect(messages(...specs.map((spec, index) => reconciler(`r${index}`, spec)))).toEqual({})
})

it.each([
  ['a common namespace', inNamespaces('x', 'y'), inNamespaces('y', 'z')],
  ['one of them is for all namespaces', inNamespaces('x'), widgets],
])('%s: an overlap of both', (_, one, other) => {
  const overlaps = messages(reconciler('a', { for: one, owns: [pods] }), reconciler('b', { for: other, owns: [pods] }))
  expect(Object.keys(overlaps)).toEqual(['a', 'b'])
})

it('an overlap says that selectors may keep them apart', () => {
  const a = reconciler('a', { for: { ...widgets, selector: 'team=a' }, owns: [pods] })
  const b = reconciler('b', { for: { ...widgets, selector: 'team=b' }, owns: [pods] })
  expect(messages(a, b)['b']).toContain('Objects that only one of their selectors matches are not concerned.')
})

it('an overlap names five others at most, whatever the number of Reconcilers', () => {
  const many = Array.from({ length: 9 }, (_, index) => reconciler(`r${index}`, { for: widgets, owns: [pods] }))
  const { r0, r8 } = messages(...many) as { r0: string; r8: string }
  expect(r0).toContain('r1 (pods), r2 (pods), r3 (pods), r4 (pods), r5 (pods) and others.')
  expect(r8).toContain('r0 (pods), r1 (pods), r2 (pods), r3 (pods), r4 (pods) and others.')
})

const now = new Date('2030-01-01T00:10:00Z')
const ago = (seconds: number) => new Date(now.getTime() - seconds * 1000)
const health = (more: Partial<ResourceStatus>): ResourceStatus => ({
  ...status(['a@1']),
  resource: 'pods.v1',
  since: ago(600),
  resourceVersion: '7',
  latestResourceVersion: '7',
  lastEventAt: ago(300),
  heardAt: ago(62),
  ...more,
})

describe('a bridge', () => {
  it.each<[string, Partial<ResourceStatus>]>([
    ['whose watch is quiet: no more than a bookmark a minute', {}],
    ['whose watch is asked for anew after silence', { open: false, heardAt: ago(80), unansweredSince: ago(5) }],
    ['that lists for long', { phase: 'listing', open: false, heardAt: ago(300) }],
    ['whose changes wait for a moment', { heldBackSince: ago(5), unconfirmed: 3 }],
    ['whose watch broke a moment ago', { failingSince: ago(5), failure: { kind: 'unreachable', message: '' } }],
    ['that is asked for what does not exist', { synced: false, failure: { kind: 'absent', message: '' } }],
    ['that is asked for what it may not see', { synced: false, failure: { kind: 'forbidden', message: '' } }],
  ])('%s does its work', (_name, more) => {
    expect(troubles({ resources: [health(more)], refused: [], orphans: [], paused: [] }, now)).toEqual([])
  })

  it('that has not begun does not', () => {
    expect(troubles({ resources: [], refused: [], orphans: [], paused: [] }, now)).toEqual([
      'the bridge has not begun to watch',
    ])
  })

  it.each<[string, Partial<ResourceStatus>, string]>([
    ['that has not listed everything', { synced: false }, 'pods.v1: not synced yet'],
    [
      'that NATS has not answered for long',
      { heldBackSince: ago(40), namespace: 'one' },
      'pods.v1 in one: a change is not confirmed by NATS since 40 s',
    ],
    ['whose watch is stuck', { failingSince: ago(31) }, 'pods.v1: the watch fails since 31 s'],
    ['whose API server hangs', { heardAt: ago(91) }, 'pods.v1: the API server has sent nothing for 91 s'],
    [
      'whose API server does not answer',
      { open: false, unansweredSince: ago(31) },
      'pods.v1: the API server has not answered the request for the watch for 31 s',
    ],
  ])('%s does not, and says so', (_name, more, trouble) => {
    expect(troubles({ resources: [health(more)], refused: [], orphans: [], paused: [] }, now)).toEqual([trouble])
  })
})
