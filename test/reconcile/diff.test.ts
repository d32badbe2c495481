import { describe, expect, it } from 'vitest'
import { differences } from '../../reconcile/compare.ts'

describe('what differs', () => {
  it.each([
    ['nothing', { a: 1, b: [1, { c: 2 }] }, { b: [1, { c: 2 }], a: 1 }, []],
    ['a value', { a: { b: 1 } }, { a: { b: 2 } }, [{ path: '.a.b', before: 1, after: 2 }]],
    ['a new part, value by value', {}, { a: { b: [{ c: 1 }] } }, [{ path: '.a.b[0].c', after: 1 }]],
    ['a new empty object', {}, { a: { b: {} } }, [{ path: '.a.b', after: {} }]],
    ['a new empty list', {}, { a: [] }, [{ path: '.a', after: [] }]],
    ['an empty object that goes', { a: { b: {} } }, {}, [{ path: '.a.b', before: {} }]],
    ['an object that becomes empty', { a: { b: 1 } }, { a: {} }, [{ path: '.a', before: { b: 1 }, after: {} }]],
    ['a list that gets its first item', { a: [] }, { a: [1] }, [{ path: '.a', before: [], after: [1] }]],
    ['an empty object in place of a list', { a: [] }, { a: {} }, [{ path: '.a', before: [], after: {} }]],
    ['annotations of the server’s alone', {}, { metadata: { annotations: { 'fairlead.dev/desired': 'x' } } }, []],
    ['an item less', { a: [1, 2] }, { a: [1] }, [{ path: '.a[1]', before: 2 }]],
    ['another type', { a: [1] }, { a: 'x' }, [{ path: '.a', before: [1], after: 'x' }]],
    ['an odd key', { 'x/y': 1 }, {}, [{ path: "['x/y']", before: 1 }]],
    ['what is the server’s alone', { metadata: { resourceVersion: '1' } }, { metadata: { resourceVersion: '2' } }, []],
  ])('%s', (_, before, after, expected) => {
    expect(differences(before, after)).toEqual(expected)
  })
})
