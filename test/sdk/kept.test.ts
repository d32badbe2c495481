import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { keptOf, readKept, restored, writeKept } from '../../sdk/kept.ts'

/** `f` is any field, `map` a list with keys, `set` a set: all of a spec. */
const schema = {
  properties: {
    spec: {
      properties: {
        f: {},
        list: { items: { properties: { subs: { items: {} } } } },
        map: { items: {}, 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['n'] },
        set: { items: {}, 'x-kubernetes-list-type': 'set' },
      },
    },
  },
}

/** What is stored of `whole` after a client has seen `shown` of it, and has written `edit`. */
function stored(whole: object, shown: object, edit: object): unknown {
  const text = writeKept(new Map([['v1', keptOf({ spec: shown }, { spec: whole }, schema)]]))
  const { spec } = restored({ spec: edit }, readKept(text).get('v1') ?? [], schema) as { spec: unknown }
  return spec
}

describe('what a version does not show stays while its client', () => {
  it.each<[string, object, object, object, object]>([
    ['sets a field beside it', { f: { tls: 'b' } }, {}, { f: { url: 'c' } }, { f: { url: 'c', tls: 'b' } }],
    [
      'sets a field deep beside it',
      { f: { a: { tls: 'b' } } },
      {},
      { f: { a: { x: 1 } } },
      { f: { a: { x: 1, tls: 'b' } } },
    ],
    ['leaves out an empty list, as it does with each', { map: [{ n: 'h' }] }, { map: [] }, {}, { map: [{ n: 'h' }] }],
    ['leaves out an empty list without keys', { list: [1] }, { list: [] }, {}, { list: [1] }],
    ['leaves out an empty object', { f: 1 }, { f: {} }, {}, { f: 1 }],
    ['leaves out the list', { map: [{ n: 'a' }, { n: 'h' }] }, { map: [{ n: 'a' }] }, {}, { map: [{ n: 'h' }] }],
    [
      'changes the first of several elements to another one',
      { list: [80, 443] },
      { list: [80] },
      { list: [443] },
      { list: [443, 443] },
    ],
    ['removes the first of several elements', { list: [80, 443] }, { list: [80] }, {}, { list: [443] }],
    [
      'changes the first of several objects',
      {
        list: [
          { p: 80, name: 'a' },
          { p: 443, name: 'b' },
        ],
      },
      { list: [{ p: 80 }] },
      { list: [{ p: 81 }] },
      { list: [{ p: 81 }, { p: 443, name: 'b' }] },
    ],
    [
      'adds to a set',
      { set: ['a', 'h', 'b'] },
      { set: ['a', 'b'] },
      { set: ['a', 'b', 'c'] },
      { set: ['a', 'h', 'b', 'c'] },
    ],
    [
      'adds to a set what it does not see there',
      { set: ['a', 'h'] },
      { set: ['a'] },
      { set: ['h', 'a'] },
      { set: ['h', 'a'] },
    ],
    [
      'adds to a list',
      { list: ['a', 'h', 'b'] },
      { list: ['a', 'b'] },
      { list: ['b', 'c', 'a'] },
      { list: ['b', 'c', 'a', 'h'] },
    ],
    [
      'adds an element to a list',
      { list: [{ p: 1, q: 'x' }, { p: 2 }] },
      { list: [{ p: 1 }, { p: 2 }] },
      { list: [{ p: 3 }, { p: 1 }, { p: 2 }] },
      { list: [{ p: 3 }, { p: 1, q: 'x' }, { p: 2 }] },
    ],
    [
      'adds an element that looks like others',
      {
        list: [
          { p: 1, q: 'x' },
          { p: 1, q: 'y' },
        ],
      },
      { list: [{ p: 1 }, { p: 1 }] },
      { list: [{ p: 1 }, { p: 1 }, { p: 1 }] },
      { list: [{ p: 1, q: 'x' }, { p: 1, q: 'y' }, { p: 1 }] },
    ],
    [
      'adds an element that looks like one without more',
      { list: [{ p: 1 }, { p: 1, q: 'y' }] },
      { list: [{ p: 1 }, { p: 1 }] },
      { list: [{ p: 1 }, { p: 1 }, { p: 1 }] },
      { list: [{ p: 1 }, { p: 1, q: 'y' }, { p: 1 }] },
    ],
    [
      'moves an element with a list of its own',
      { list: [{ subs: [{ p: 1, q: 'x' }] }, { subs: [] }] },
      { list: [{ subs: [{ p: 1 }] }, { subs: [] }] },
      { list: [{ subs: [] }, { subs: [{ p: 1 }] }] },
      { list: [{ subs: [] }, { subs: [{ p: 1, q: 'x' }] }] },
    ],
    [
      'inserts an element into a list with keys',
      { map: [{ n: 'a' }, { n: 'h' }, { n: 'b', q: 1 }] },
      { map: [{ n: 'a' }, { n: 'b' }] },
      { map: [{ n: 'a' }, { n: 'c' }, { n: 'b' }] },
      { map: [{ n: 'a' }, { n: 'c' }, { n: 'h' }, { n: 'b', q: 1 }] },
    ],
    [
      'reorders a list with keys',
      { map: [{ n: 'a' }, { n: 'h' }, { n: 'b', q: 1 }] },
      { map: [{ n: 'a' }, { n: 'b' }] },
      { map: [{ n: 'b' }, { n: 'a' }] },
      { map: [{ n: 'b', q: 1 }, { n: 'a' }, { n: 'h' }] },
    ],
  ])('%s', (_, whole, shown, edit, after) => {
    expect(stored(whole, shown, edit)).toEqual(after)
  })
})

describe('for any object and any edit', () => {
  const number = fc.nat(2)
  const hidden = { h1: number, h2: number }
  const options = { requiredKeys: [] }
  const name = fc.constantFrom('a', 'b', 'c', 'h1', 'h2')
  const specs = fc.record(
    {
      f: fc.record({ a: number, h1: number, o: fc.record({ x: number, ...hidden }, options) }, options),
      list: fc.array(fc.oneof(fc.record({ p: number, ...hidden }, options), name), { maxLength: 4 }),
      map: fc.uniqueArray(fc.record({ n: name, p: number, ...hidden }, { requiredKeys: ['n'] }), {
        selector: ({ n }) => n,
      }),
      set: fc.uniqueArray(name),
    },
    options,
  )
  const isHidden = (key: unknown) => typeof key === 'string' && key.startsWith('h')
  /** What a version shows that hides some fields, and some elements. */
  const shownOf = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.filter((one) => !isHidden(one) && !isHidden(one?.n)).map(shownOf)
    if (typeof value !== 'object' || value === null) return value
    return Object.fromEntries(
      Object.entries(value)
        .filter(([key]) => !isHidden(key))
        .map(([key, field]) => [key, shownOf(field)]),
    )
  }
  const isEmpty = (value: unknown) => typeof value === 'object' && value !== null && Object.keys(value).length === 0
  /** Without lists and objects that are empty: they say as much as absent ones. */
  const essence = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(essence)
    if (typeof value !== 'object' || value === null) return value
    const fields = Object.entries(value).map(([key, field]) => [key, essence(field)] as const)
    return Object.fromEntries(fields.filter(([, field]) => !isEmpty(field)))
  }
  interface Spec {
    f?: { h1?: number; o?: { h1?: number; h2?: number } }
    list?: unknown[]
    map?: { n: string; h1?: number; h2?: number }[]
    set?: string[]
  }
  const hiddenIn = ({ f, list = [], map = [], set = [] }: Spec, gone: Spec) => ({
    fields: [f?.h1, f?.o?.h1, f?.o?.h2],
    elements: [list.filter(isHidden), map.filter(({ n }) => isHidden(n)), set.filter(isHidden)].map((all) =>
      all.map((one) => JSON.stringify(one)).sort(),
    ),
    ofElements: map
      .filter(({ n }) => !gone.map?.some((one) => one.n === n))
      .map(({ n, h1, h2 }) => JSON.stringify([n, h1, h2]))
      .sort(),
  })

  it('the edit wins, and all that is hidden stays: fields, elements, and fields of the elements that have keys', () => {
    fc.assert(
      fc.property(specs, specs, (whole, other) => {
        const [shown, edit] = [shownOf(whole) as Spec, shownOf(other) as Spec]
        const result = stored(whole, shown, edit) as Spec
        expect(essence(shownOf(result))).toEqual(essence(edit))
        const gone = { map: (shown.map ?? []).filter(({ n }) => !edit.map?.some((one) => one.n === n)) }
        const fresh = (edit.map ?? []).filter(({ n }) => !shown.map?.some((one) => one.n === n))
        expect(hiddenIn(result, { map: fresh })).toEqual(hiddenIn(whole, gone))
      }),
      { numRuns: 2000 },
    )
  })
})

it('takes time in proportion to the list: the API server waits for 30 seconds', () => {
  for (const name of ['list', 'map']) {
    const whole = Array.from({ length: 4000 }, (_, n) => ({ n, q: n }))
    const shown = whole.map(({ n }) => ({ n }))
    const before = process.cpuUsage()
    expect(stored({ [name]: whole }, { [name]: shown }, { [name]: shown })).toEqual({ [name]: whole })
    expect(process.cpuUsage(before).user).toBeLessThan(5_000_000)
  }
})
