import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import type { NoOps } from '../../reconcile/no-ops.ts'
import { parseOutcome } from '../../reconcile/outcome.ts'
import { type Plan, plan } from '../../reconcile/plan.ts'
import { CONFIG_MAPS, child, widget, world } from '../dispatch/objects.ts'

const WIDGETS = { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' }
const MARK = 'metadata.fairlead.dev/widgets'

interface Given {
  object?: KubeObject
  writes?: ('Metadata' | 'Deletion')[]
  selector?: string
  identity?: string
  noOps?: NoOps
}

function planned(outcome: unknown, given: Given = {}): Plan {
  const { object = widget(), writes = ['Metadata', 'Deletion'], selector, identity = 'widgets' } = given
  const { noOps = {} } = given
  const spec = { for: { ...WIDGETS, selector }, owns: [CONFIG_MAPS], writes }
  const circumstances = { identity, now: new Date('2030-01-01T00:00:00Z'), noOps, isConfidential: () => false }
  return plan(spec, world(object), parseOutcome(outcome), circumstances)
}
const returning = (metadata: unknown, given?: Given) => planned({ metadata }, given)

/** The object as the API server would have it after that write. */
function after(object: KubeObject, { metadata: write }: Plan): KubeObject {
  const { labels = {}, annotations = {} } = write!.object.metadata
  const { metadata } = object
  return {
    ...object,
    metadata: {
      ...metadata,
      resourceVersion: '101',
      labels: { ...metadata.labels, ...labels },
      annotations: { ...metadata.annotations, ...annotations },
    },
  }
}

describe('labels and annotations that a function returns', () => {
  it('are one apply of these keys alone, bound to the version that was observed', () => {
    const { metadata } = returning({ labels: { tier: 'web' }, annotations: { note: 'a b' } })
    expect(metadata).toMatchObject({
      manager: MARK,
      fingerprint: expect.stringMatching(/^.{16}$/),
      object: {
        apiVersion: 'test.fairlead.dev/v1',
        kind: 'Widget',
        metadata: {
          name: 'w',
          namespace: 'default',
          uid: 'uid-w',
          resourceVersion: '100',
          labels: { tier: 'web' },
          annotations: { note: 'a b', [MARK]: metadata!.fingerprint },
        },
      },
    })
  })

  it('that the object has are not written, in whatever order they come, beside whatever keys of others', () => {
    const object = widget({ metadata: { labels: { theirs: 'x' } } })
    const written = after(object, returning({ labels: { a: '1', b: '2' } }, { object }))
    expect(returning({ labels: { b: '2', a: '1' } }, { object: written }).metadata).toBeUndefined()
  })

  it.each([
    ['a value was changed', { labels: { a: 'x', b: '2' } }],
    ['a key was removed', { labels: { b: '2' } }],
    ['the function returns a key less', { returned: { a: '1' } }],
    ['the function returns a key more', { returned: { a: '1', b: '2', c: '3' } }],
    ['it is a copy of the object, whose keys another manager has set', { uid: 'uid-copy' }],
  ])('are written again when %s', (_, { labels, returned = { a: '1', b: '2' }, uid = 'uid-w' }: Drift) => {
    const written = after(widget(), returning({ labels: { a: '1', b: '2' } }))
    const object = { ...written, metadata: { ...written.metadata, uid, ...(labels && { labels }) } }
    expect(returning({ labels: returned }, { object }).metadata?.object.metadata.labels).toEqual(returned)
  })
  interface Drift {
    labels?: Record<string, string>
    returned?: Record<string, string>
    uid?: string
  }

  it('are left alone when it returns none, and all removed when it returns {}, once', () => {
    const object = after(widget(), returning({ labels: { a: '1' } }))
    expect(planned({}, { object }).metadata).toBeUndefined()
    const { metadata } = returning({}, { object })
    expect(metadata?.object.metadata).toEqual({
      name: 'w',
      namespace: 'default',
      uid: 'uid-w',
      resourceVersion: '101',
    })
    expect(returning({}).metadata).toBeUndefined()
  })

  it('are not sent again while the API server has said that they change nothing', () => {
    const { metadata } = returning({ labels: { a: '1' } })
    const noOps = { 'uid-w/metadata': `100 ${metadata!.fingerprint}` }
    expect(returning({ labels: { a: '1' } }, { noOps }).metadata).toBeUndefined()
    expect(returning({ labels: { a: '2' } }, { noOps }).metadata).toBeDefined()
  })

  it('of two reconcilers have managers of their own, also where only the end of a long name differs', () => {
    const managers = ['a', 'b'].map((end) => returning({ labels: { a: '1' } }, { identity: 'x'.repeat(200) + end }))
    const [one = '', other = ''] = managers.map(({ metadata }) => metadata?.manager)
    expect(one).not.toBe(other)
    expect(one.split('/')[1]).toHaveLength(63)
  })

  it.each([
    ['labels', 'a b'],
    ['labels', ''],
    ['labels', '/tier'],
    ['labels', 'example.com/'],
    ['labels', 'a/b/c'],
    ['labels', '-tier'],
    ['labels', 'x'.repeat(64)],
    ['labels', 'Example.com/tier'],
    ['annotations', 'not ok'],
    ['annotations', 'example..com/note'],
  ])('%s with the key %j are refused, and named', (field, key) => {
    const { findings } = returning({ [field]: { [key]: 'x' } })
    expect(findings).toEqual([
      expect.stringContaining(`metadata.${field} has the key ${JSON.stringify(key)}, which Kub`),
    ])
  })

  it.each([
    ['labels', 'fairlead.dev/paused'],
    ['annotations', MARK],
    ['annotations', 'testing.fairlead.dev/touched'],
    ['annotations', 'kubectl.kubernetes.io/last-applied-configuration'],
  ])('%s that belong to Fairlead or kubectl are refused: %s', (field, key) => {
    expect(returning({ [field]: { [key]: 'true' } }).findings).toEqual([
      expect.stringMatching(/belongs to \w+: use a key/),
    ])
  })

  it.each(['a b', '-', 'x'.repeat(64), 'ä'])('the value %j of a label is refused, and named', (value) => {
    const { findings } = returning({ labels: { tier: value }, annotations: { note: value } })
    expect(findings).toEqual([
      expect.stringContaining(`metadata.labels has ${JSON.stringify(value)} as the value of "tier"`),
    ])
  })

  it('as Kubernetes takes them are taken', () => {
    const labels = { a: '', 'example.com/A_b.c-1': 'A_b.c-1', [`${'d'.repeat(60)}.example.com/x`]: '0' }
    const annotations = { 'Example.com/note': 'any text\nof several lines', 'notfairlead.dev/x': '' }
    expect(returning({ labels, annotations }).findings).toEqual([])
  })

  it.each([
    ['name', { name: 'other' }],
    ['finalizers', { finalizers: [] }],
    ['a number', { labels: { size: 3 } }],
  ])('beside which there is %s are no valid outcome', (_, metadata) => {
    expect(() => returning(metadata)).toThrow(/no valid outcome: metadata/)
  })

  it.each([
    ['tier!=none', { tier: 'none' }, 1],
    ['tier!=none', { tier: 'web' }, 0],
    ['tier=web', { other: 'x' }, 0],
    // It is finalized although it has left the selection.
    ['tier=gold', { tier: 'none' }, 0],
  ])('that would end the selection by %s are refused: %j', (selector, labels, refused) => {
    const object = widget({ metadata: { labels: { tier: 'web' } } })
    expect(returning({ labels }, { object, selector }).findings).toHaveLength(refused)
  })
})

describe('what a reconciler does not declare', () => {
  it.each([
    [{ metadata: {} }, ['Deletion'], 'the function returned "metadata", which it has no right to write'],
    [{ deleteObject: true }, ['Metadata'], 'the function returned "deleteObject", but has no right'],
  ] as const)('%j is refused', (outcome, writes, message) => {
    expect(planned(outcome, { writes: [...writes] }).findings).toEqual([expect.stringContaining(message)])
    expect(planned({ deleteObject: false }, { writes: [...writes] }).findings).toEqual([])
  })
})

describe('the deletion of the object', () => {
  it('is not requested again while it is being deleted', () => {
    const object = widget({ metadata: { deletionTimestamp: '2030-01-01T00:00:00Z' } })
    expect(planned({ deleteObject: true }, { object }).isDeletion).toBe(false)
    expect(planned({ deleteObject: true, apply: [] }, { object: child('Widget', 'w') }).isDeletion).toBe(true)
  })
})
