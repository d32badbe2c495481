import { expect, it } from 'vitest'
import { overlapsOf } from '../../bridge/conditions.ts'
import { configMaps, pods, reconciler, widgets } from './objects.ts'

const gadgets = { ...widgets, resource: 'gadgets', kind: 'Gadget' }
const inNamespaces = (...namespaces: string[]) => ({ ...widgets, namespaces })
const messages = (...reconcilers: ReturnType<typeof reconciler>[]): Record<string, string> =>
  Object.fromEntries([...overlapsOf(reconcilers)].map(([{ name }, { message }]) => [name, message]))

it('names the other Reconciler and the common kinds, on both', () => {
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

it('says that selectors may keep them apart', () => {
  const a = reconciler('a', { for: { ...widgets, selector: 'team=a' }, owns: [pods] })
  const b = reconciler('b', { for: { ...widgets, selector: 'team=b' }, owns: [pods] })
  expect(messages(a, b)['b']).toContain('Objects that only one of their selectors matches are not concerned.')
})

it('names five others at most, whatever the number of Reconcilers', () => {
  const many = Array.from({ length: 9 }, (_, index) => reconciler(`r${index}`, { for: widgets, owns: [pods] }))
  const { r0, r8 } = messages(...many) as { r0: string; r8: string }
  expect(r0).toContain('r1 (pods), r2 (pods), r3 (pods), r4 (pods), r5 (pods) and others.')
  expect(r8).toContain('r0 (pods), r1 (pods), r2 (pods), r3 (pods), r4 (pods) and others.')
})
