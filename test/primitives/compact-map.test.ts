import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { CompactMap } from '../../core/primitives/compact-map.ts'

it('behaves as a Map of strings, whatever is set and deleted in which order', () => {
  const key = fc.oneof(fc.constantFrom('', 'a', 'ä', 'a/b', '𝒳'), fc.string({ maxLength: 4 }))
  const change = fc.record({ key, value: fc.option(fc.string({ unit: 'grapheme' }), { nil: undefined }) })
  fc.assert(
    fc.property(fc.array(change, { maxLength: 60 }), (changes) => {
      const map = new CompactMap()
      const model = new Map<string, string>()
      for (const { key, value } of changes) {
        if (value === undefined) {
          map.delete(key)
          model.delete(key)
        } else {
          map.set(key, value)
          model.set(key, value)
        }
        expect(map.get(key)).toBe(model.get(key))
      }
      expect(map.size).toBe(model.size)
      expect(new Map(map.entries())).toEqual(model)
      expect([...map.entries()]).toHaveLength(model.size)
    }),
  )
})

it('holds entries beyond one chunk of memory and one table of slots, each at its position', () => {
  const map = new CompactMap()
  const value = 'v'.repeat(100)
  const positions = Array.from({ length: 30_000 }, (_, index) => map.set(`key-${index}`, `${value}${index}`))
  for (const index of [0, 1, 767, 8191, 29_999]) {
    expect(map.get(`key-${index}`)).toBe(`${value}${index}`)
    expect(map.keyAt(positions[index]!)).toBe(`key-${index}`)
  }
  expect(map.size).toBe(30_000)
  expect(map.get('key-30000')).toBeUndefined()
  expect([...map.entries()].map(([key]) => key).slice(-1)).toEqual(['key-29999'])
})

it('leaves out what is deleted while its entries are read', () => {
  const map = new CompactMap()
  for (const key of ['a', 'b', 'c']) map.set(key, '1')
  const read: string[] = []
  for (const [key] of map.entries()) {
    read.push(key)
    map.delete('b')
  }
  expect(read).toEqual(['a', 'c'])
})

it('keeps the position of an entry that is set to the same value', () => {
  const map = new CompactMap()
  const position = map.set('a', '')
  expect(map.set('a', '')).toBe(position)
  expect(map.size).toBe(1)
})

it('refuses a text that it could not give back', () => {
  const map = new CompactMap()
  expect(() => map.set('a', 'x'.repeat(65_536))).toThrow('a text has 65536 bytes, more than 65535')
  expect(map.get('a')).toBeUndefined()
})
