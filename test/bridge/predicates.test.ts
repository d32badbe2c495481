import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { PAUSED_ANNOTATION } from '#spec'
import { UpdatePredicates } from '../../bridge/publisher.ts'

const object = (metadata: object): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Widget',
  metadata: { name: 'w', uid: 'u', generation: 1, ...metadata },
})

describe('an update counts for who looks at the generation only', () => {
  it.each([
    ['when it is another', { generation: 2 }, true],
    ['when the deletion begins', { deletionTimestamp: 'now' }, true],
    ['when a pause begins', { annotations: { [PAUSED_ANNOTATION]: 'true' } }, true],
    ['not when another annotation changes', { annotations: { other: 'true' } }, false],
    ['not when a label changes', { labels: { a: 'b' } }, false],
  ])('%s', (_, metadata, counts) => {
    const predicates = new UpdatePredicates()
    predicates.remember('w', object({}))
    expect(predicates.hasChanged('w', object(metadata), ['Generation'])).toBe(counts)
  })

  it('always, where the version before is not known: a run too many, not one too few', () => {
    const labelled = object({ labels: { a: 'b' } })
    expect(new UpdatePredicates().hasChanged('w', labelled, ['Generation'])).toBe(true)
  })

  it('always, where the kind has no generation', () => {
    const predicates = new UpdatePredicates()
    predicates.remember('w', object({ generation: undefined }))
    expect(predicates.hasChanged('w', object({ generation: undefined }), ['Generation'])).toBe(true)
    expect(predicates.hasChanged('w', object({ generation: undefined }), ['Labels'])).toBe(false)
  })

  it('when a pause ends', () => {
    const predicates = new UpdatePredicates()
    predicates.remember('w', object({ annotations: { [PAUSED_ANNOTATION]: 'true' } }))
    expect(predicates.hasChanged('w', object({}), ['Generation'])).toBe(true)
  })
})
