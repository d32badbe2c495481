import { describe, expect, it } from 'vitest'
import { MAX_NAMESPACES, Turns } from '../../queue/turns.ts'

/** The namespaces whose turn it is, one after the other; `-` is the line's. */
const turnsOf = (turns: Turns, count: number, now = 0): string =>
  Array.from({ length: count }, () => turns.next(now) ?? '-').join(' ')

function turnsWith(tokens: Record<string, readonly number[]>, head?: string): Turns {
  const turns = new Turns()
  turns.lineAt(head, 0)
  for (const [namespace, sequences] of Object.entries(tokens))
    for (const sequence of sequences) turns.note(namespace, sequence)
  return turns
}

describe('it is the turn of', () => {
  it('the line while nothing is known to wait further back', () => {
    const turns = turnsWith({})
    expect(turns.isLineAlone).toBe(true)
    expect(turnsOf(turns, 3)).toBe('- - -')
  })

  it('each namespace once for each turn of the line', () => {
    const turns = turnsWith({ a: [1, 2], b: [3], c: [4] })
    expect(turnsOf(turns, 8)).toBe('a b c - a b c -')
  })

  it('the line for the namespace that it serves already', () => {
    expect(turnsOf(turnsWith({ a: [1, 2], b: [3] }, 'a'), 4)).toBe('b - b -')
  })

  it('the next one while the first token of a namespace is being looked for', () => {
    const turns = turnsWith({ a: Array.from({ length: 40 }, (_, index) => index + 1), b: [50] })
    for (let known = 1; known <= 32; known++) expect(turns.take('a')).toEqual({ sequence: known })
    expect(turns.take('a')).toEqual({ from: 33 })
    expect(turns.take('a')).toBeUndefined()
    expect(turnsOf(turns, 6)).toBe('b b - b b -')
    turns.found('a', 33)
    expect(turns.take('a')).toEqual({ from: 34 })
    turns.found('a', undefined)
    expect(turns.take('a')).toBeUndefined()
  })
})

describe('what a namespace has next', () => {
  it('is its oldest token that the line has not come to', () => {
    const turns = turnsWith({ a: [1, 2, 3] })
    turns.lineAt('b', 2)
    expect(turns.take('a')).toEqual({ sequence: 3 })
    expect(turns.isLineAlone).toBe(true)
  })

  it('is noted once, however often it is read', () => {
    const turns = turnsWith({ a: [1, 2, 1, 2, 3] })
    expect([turns.take('a'), turns.take('a'), turns.take('a'), turns.take('a')]).toEqual([
      { sequence: 1 },
      { sequence: 2 },
      { sequence: 3 },
      undefined,
    ])
  })

  it('is not looked for where the line has passed', () => {
    const turns = turnsWith({ a: Array.from({ length: 40 }, (_, index) => index + 1) })
    turns.lineAt('b', 100)
    expect(turns.take('a')).toEqual({ from: 101 })
  })

  it('comes back a second after its key was found running', () => {
    const turns = turnsWith({ a: [1] })
    expect(turns.take('a')).toEqual({ sequence: 1 })
    turns.passOver('a', 1, 5000)
    expect(turns.isLineAlone).toBe(false)
    expect(turnsOf(turns, 2, 5999)).toBe('- -')
    expect(turnsOf(turns, 2, 6000)).toBe('a -')
    expect(turns.take('a')).toEqual({ sequence: 1 })
  })
})

it('keys of more namespaces than may be known wait in the line', () => {
  const turns = new Turns()
  for (let index = 0; index <= MAX_NAMESPACES; index++) turns.note(`n${index}`, index + 1)
  expect(turns.take(`n${MAX_NAMESPACES - 1}`)).toEqual({ sequence: MAX_NAMESPACES })
  expect(turns.take(`n${MAX_NAMESPACES}`)).toBeUndefined()
})
