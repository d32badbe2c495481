import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import { BoundedMap } from '#primitives'

it('holds so many entries, and the one that was set longest ago goes first', () => {
  const map = new BoundedMap<string, number>(2)
  map.set('a', 1)
  map.set('b', 2)
  map.set('a', 3)
  map.set('c', 4)
  expect([...map.keys()]).toEqual(['a', 'c'])
  expect([map.get('a'), map.get('b'), map.has('b')]).toEqual([3, undefined, false])
})

it('holds entries up to their total weight; one that is heavier than all of it is not kept', () => {
  const map = new BoundedMap<string, number>(10, (weight) => weight)
  map.set('a', 4)
  map.set('b', 6)
  map.set('a', 3)
  expect([...map.keys()]).toEqual(['b', 'a'])
  map.set('c', 5)
  expect([...map.keys()]).toEqual(['a', 'c'])
  map.set('d', 11)
  expect([...map.keys()]).toEqual([])
  map.set('e', 10)
  expect([...map.keys()]).toEqual(['e'])
})

it('the weight of what is deleted is free again', () => {
  const map = new BoundedMap<string, number>(2)
  map.set('a', 1)
  map.delete('a')
  map.delete('a')
  map.set('b', 1)
  map.set('c', 1)
  expect([...map.keys()]).toEqual(['b', 'c'])
  map.clear()
  map.set('d', 1)
  map.set('e', 1)
  expect([...map.keys()]).toEqual(['d', 'e'])
})

it('an undefined value is an entry', () => {
  const map = new BoundedMap<string, undefined>(1)
  map.set('a', undefined)
  map.set('b', undefined)
  expect([map.has('a'), map.has('b')]).toEqual([false, true])
})

it('entries that are set again and again, with room for more, take no more and more memory', () => {
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc') as () => void
  const map = new BoundedMap<string, number>(4096)
  const usedAfter = (sets: number): number => {
    for (let at = 0; at < sets; at++) map.set(`an entry with a name ${at % 100}`, at)
    collectGarbage()
    return process.memoryUsage().heapUsed
  }
  const before = usedAfter(20_000)
  expect(usedAfter(300_000) - before).toBeLessThan(2 * 2 ** 20)
})

const step = fc.oneof(
  { weight: 8, arbitrary: fc.record({ set: fc.nat(9), weight: fc.nat(6) }) },
  { weight: 2, arbitrary: fc.record({ delete: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.constant('clear' as const) },
)

it('keeps what a list would keep that is searched from its beginning', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const map = new BoundedMap<number, number>(10, (weight) => weight)
      let list: [number, number][] = []
      for (const one of steps) {
        if (one === 'clear') {
          map.clear()
          list = []
        } else if ('delete' in one) {
          map.delete(one.delete)
          list = list.filter(([key]) => key !== one.delete)
        } else {
          map.set(one.set, one.weight)
          list = [...list.filter(([key]) => key !== one.set), [one.set, one.weight]]
          while (list.reduce((sum, [, weight]) => sum + weight, 0) > 10) list.shift()
        }
        expect(Array.from(map.keys(), (key) => [key, map.get(key)])).toEqual(list)
      }
    }),
  )
})
