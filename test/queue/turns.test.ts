import { describe, expect, it } from 'vitest'
import { MAX_KNOWN, MAX_NAMESPACES, Turns } from '../../streams/queue/lane.ts'

/** The namespaces whose turn it is, one after the other; `-` is the line's, which serves these in turn. */
const turnsOf = (turns: Turns, count: number, line: readonly (string | undefined)[] = ['flood']): string[] =>
  Array.from({ length: count }, (_, index) => {
    const namespace = turns.next(0)
    if (namespace === undefined) turns.lineAt(line[index % line.length], 0)
    return namespace ?? '-'
  })

function turnsWith(keys: Record<string, readonly string[]>): Turns {
  const turns = new Turns(() => 0)
  for (const [namespace, names] of Object.entries(keys)) for (const name of names) turns.note(namespace, name)
  return turns
}

/** Returns the search for a set of known keys. */
function searchOf(keys: readonly string[], random: () => number) {
  const turns = new Turns(random)
  for (const key of keys) turns.note('a', key)
  for (let known = 0; known < MAX_KNOWN; known++) turns.take('a')
  return { turns, at: () => turns.take('a') }
}

const MANY = Array.from({ length: MAX_KNOWN + 8 }, (_, index) => `a.${index}`)

describe('it is the turn of', () => {
  it('the line while nothing is known to wait further back', () => {
    const turns = turnsWith({})
    expect(turns.isLineAlone).toBe(true)
    expect(turnsOf(turns, 3)).toEqual(['-', '-', '-'])
  })

  it('each namespace once while eight keys for each that waits are served: so one key in eight is out of the order', () => {
    const given = turnsOf(turnsWith({ a: ['a.1', 'a.2'], b: ['b.1'], c: ['c.1'] }), 240)
    const numberOf = (who: string) => given.filter((one) => one === who).length
    expect([numberOf('a'), numberOf('b'), numberOf('c'), numberOf('-')]).toEqual([9, 9, 9, 213])
    expect(given.slice(24, 27)).toEqual(['a', 'b', 'c'])
  })

  it('the line for a namespace that it serves already', () => {
    expect(turnsOf(turnsWith({ a: ['a.1', 'a.2'], b: ['b.1'] }), 34, ['a']).join('')).toBe(
      `${'-'.repeat(16)}b${'-'.repeat(16)}b`,
    )
  })

  it('the line alone if it serves all namespaces anyway', () => {
    const keys = Object.fromEntries(Array.from({ length: 20 }, (_, index) => [`n${index}`, [`n${index}.a`]]))
    expect(new Set(turnsOf(turnsWith(keys), 1000, Object.keys(keys)))).toEqual(new Set(['-']))
  })

  it('the next one while the first token of a namespace is being looked for', () => {
    const turns = turnsWith({ a: MANY, b: ['b.1'] })
    for (const key of MANY.slice(0, MAX_KNOWN)) expect(turns.take('a')).toEqual({ key })
    expect(turns.take('a')).toEqual({ from: 1 })
    expect(turns.take('a')).toBeUndefined()
    expect(new Set(turnsOf(turns, 100))).toEqual(new Set(['b', '-']))
    turns.found('a', 1, 33)
    expect(turns.take('a')).toEqual({ from: 34 })
    turns.found('a', 34, undefined)
    expect(turns.take('a')).toBeUndefined()
  })
})

describe('what a namespace has next', () => {
  it('is noted once, however often it is told', () => {
    const turns = turnsWith({ a: ['a.1', 'a.2', 'a.1', 'a.2'] })
    expect([turns.take('a'), turns.take('a'), turns.take('a')]).toEqual([{ key: 'a.1' }, { key: 'a.2' }, undefined])
    expect(turns.isLineAlone).toBe(true)
  })

  it('is none that came later, while older ones have to be looked for', () => {
    const turns = turnsWith({ a: MANY })
    turns.take('a')
    turns.note('a', 'a.late')
    for (let known = 1; known < MAX_KNOWN; known++) expect(turns.take('a')).toEqual({ key: MANY[known] })
    expect(turns.take('a')).toEqual({ from: 1 })
  })

  it('is any of those that are known', () => {
    const turns = new Turns(() => 0.99)
    for (const key of ['a.1', 'a.2', 'a.3']) turns.note('a', key)
    expect([turns.take('a'), turns.take('a')]).toEqual([{ key: 'a.3' }, { key: 'a.2' }])
  })

  it('is not looked for where the line has passed', () => {
    const turns = turnsWith({ a: MANY })
    for (let known = 0; known < MAX_KNOWN; known++) turns.take('a')
    turns.lineAt('b', 100)
    expect(turns.take('a')).toEqual({ from: 101 })
    expect([turns.isAhead(100), turns.isAhead(101)]).toEqual([false, true])
  })

  it('is not the one behind a key that another worker has just taken: that one takes it too', () => {
    const { turns, at } = searchOf(MANY, () => 0.5)
    expect(at()).toEqual({ from: 1 })
    turns.found('a', 1, 40)
    expect(at()).toEqual({ from: 41 })
    turns.found('a', 41, 43)
    turns.passOver('a', 'a.41', 5000, 43)
    expect(at()).toEqual({ from: 44 + 32 * 3 })
    turns.found('a', 44 + 32 * 3, undefined)
    turns.next(5999)
    expect(turns.take('a')).toBeUndefined()
    turns.next(6000)
    expect([turns.take('a'), at()]).toEqual([{ key: 'a.41' }, { from: 44 }])
  })

  it('is the one behind a key that runs here', () => {
    const { turns, at } = searchOf(MANY, () => 0.5)
    expect(at()).toEqual({ from: 1 })
    turns.found('a', 1, 40)
    turns.passOver('a', 'a.40', 5000)
    expect(at()).toEqual({ from: 41 })
  })

  it('is looked for where others were left, although another search ends later', () => {
    const { turns, at } = searchOf(MANY, () => 0.5)
    expect(at()).toEqual({ from: 1 })
    turns.found('a', 1, 40)
    turns.passOver('a', 'a.40', 5000, 40)
    expect(at()).toEqual({ from: 41 + 32 * 40 })
    expect(turns.next(6000)).toBeUndefined()
    turns.found('a', 41 + 32 * 40, undefined)
    expect([turns.take('a'), at()]).toEqual([{ key: 'a.40' }, { from: 41 }])
  })

  it('comes back a second after its key was found running', () => {
    const turns = turnsWith({ a: ['a.1'] })
    expect(turns.take('a')).toEqual({ key: 'a.1' })
    turns.passOver('a', 'a.1', 5000)
    expect(turns.isLineAlone).toBe(false)
    turns.next(5999)
    expect(turns.take('a')).toBeUndefined()
    turns.next(6000)
    expect(turns.take('a')).toEqual({ key: 'a.1' })
  })
})

it('keys of more namespaces than may be known wait in the line', () => {
  const turns = new Turns(() => 0)
  for (let index = 0; index <= MAX_NAMESPACES; index++) turns.note(`n${index}`, `n${index}.a`)
  expect(turns.take(`n${MAX_NAMESPACES - 1}`)).toEqual({ key: `n${MAX_NAMESPACES - 1}.a` })
  expect(turns.take(`n${MAX_NAMESPACES}`)).toBeUndefined()
})
