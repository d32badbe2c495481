import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { holderOf, SHARD_LABEL } from '#spec'
import { currentConditions, releasedStatus } from '../../bridge/conditions.ts'
import { Registry } from '../../bridge/registry.ts'
import { reconcilerObject, widgets } from './objects.ts'
import { silent } from './world.ts'

const LABEL = (shard: string | undefined) => (shard === undefined ? {} : { labels: { [SHARD_LABEL]: shard } })

/** A Reconciler with the label, whose condition Synced a bridge of the other shard has written. */
function object(label: string | undefined, writtenBy?: string, reason = 'Watching', spec: object = {}): KubeObject {
  const made = reconcilerObject('widget', { for: widgets, ...spec })
  const conditions = [{ type: 'Synced', status: 'True', reason }]
  const status = { conditions, ...(writtenBy !== '' && { shard: writtenBy }) }
  const metadata = { ...made.metadata, uid: 'u', generation: 1, ...LABEL(label) }
  return { ...made, metadata, ...(writtenBy !== undefined && { status }) }
}

it.each<[string, KubeObject, string | undefined]>([
  ['no bridge has taken it up', object('a'), undefined],
  ['an installation without a shard, or an earlier version, has', object('a', ''), ''],
  ['shard b has', object('a', 'b'), 'b'],
  ['shard b has released it', object('a', 'b', 'Released'), undefined],
])('the holder of a Reconciler is known by its status: %s', (_, one, holder) => {
  expect(holderOf(one)).toBe(holder)
})

it.each([
  ['', undefined],
  ['', ''],
  ['a', 'a'],
])(
  'an installation with the shard "%s" serves a Reconciler with the label %s, and another one does not',
  (shard, label) => {
    const namesIn = (of: string) => {
      const registry = new Registry(silent, of, () => {})
      registry.listed([
        object(label),
        { ...reconcilerObject('bad', { for: { ...widgets, kind: '' } }), metadata: { name: 'bad', ...LABEL(label) } },
      ])
      const named = (entries: readonly { name: string }[]) => entries.map(({ name }) => name).sort()
      return [named(registry.served), named(registry.refused), named(registry.elsewhere)]
    }
    expect(namesIn(shard)).toEqual([['widget'], ['bad'], []])
    expect(namesIn('other')).toEqual([[], [], ['bad', 'widget']])
  },
)

it('a change of the status is news where it hands a Reconciler over, and only there', () => {
  const changesIn = (shard: string, ...versions: KubeObject[]) => {
    let changes = 0
    const registry = new Registry(silent, shard, () => changes++)
    registry.listed([])
    changes = 0
    for (const version of versions) registry.changed('modified', version)
    return changes
  }
  expect(changesIn('a', object('a'), object('a', 'a'), object('a', 'a', 'Listing'))).toBe(1)
  expect(changesIn('b', object('a'), object('a', 'a'), object('a', 'a', 'Listing'))).toBe(1)
  expect(changesIn('b', object('b', 'a'), object('b', 'a', 'HeldByShard'), object('b', 'a', 'Released'))).toBe(2)
  expect(changesIn('a', object('a', 'a'), object('b', 'a'), object('b', 'a', 'Released'))).toBe(3)
})

it('a release shows in Synced and Ready who gave and who should take, and keeps other conditions', () => {
  const of = (type: string) => ({ type, status: 'True', lastTransitionTime: 'before' })
  const moved = {
    ...object('b'),
    status: { shard: 'a', conditions: [of('Ready'), of('Synced'), of('Overlapping'), of('Other')] },
  }
  const message = 'shard a has released it, and shard b has not taken it up yet'
  const lastTransitionTime = '1970-01-01T00:00:00.000Z'
  expect(releasedStatus(moved, 'a', new Date(0))).toEqual({
    shard: null,
    conditions: [
      { type: 'Ready', status: 'False', reason: 'NotServed', message, lastTransitionTime },
      { type: 'Synced', status: 'False', reason: 'Released', message, lastTransitionTime },
      of('Other'),
    ],
  })
})

it.each([
  ['it is admitted', object('b', 'b'), undefined, 'b'],
  ['another shard holds it', object('b', 'a'), { reason: 'HeldByShard', message: '' } as const, 'a'],
  ['another shard holds it, and it is refused', object('b', 'a', 'Watching', { timeoutSeconds: 0 }), undefined, 'a'],
  ['it cannot be prepared', object('b'), { reason: 'NotPrepared', message: '' } as const, 'b'],
])('the holder stays in the status until it has released the Reconciler: %s', (_, one, failure, shard) => {
  const registry = new Registry(silent, 'b', () => {})
  registry.listed([one])
  const admission = { failureOf: () => failure }
  const facts = { registry, admission, overlaps: new Map(), isWatched: () => true, statusesOf: () => [] }
  const [said] = currentConditions({ ...facts, shard: 'b' })
  expect(said?.shard).toBe(shard)
})
