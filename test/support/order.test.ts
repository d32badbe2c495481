import { expect, it } from 'vitest'
import { inOrder } from './order.ts'

const file = (name: string, duration: number) => ({ name, duration, needsNode: name.startsWith('node') })
const namesOf = (files: readonly { name: string }[]) => files.map(({ name }) => name).join(' ')

it('the longest file begins first, and one that is not known before all', () => {
  expect(namesOf(inOrder([file('a', 1), file('b', 3), file('new', Number.POSITIVE_INFINITY), file('c', 2)], 2))).toBe(
    'new b c a',
  )
})

it('a file that needs the node begins when the one before it has ended, so that no worker waits', () => {
  const files = [file('node1', 10), file('node2', 9), file('a', 8), file('b', 4), file('c', 2), file('d', 1)]
  expect(namesOf(inOrder(files, 2))).toBe('node1 a b c node2 d')
})

it('files that need the node are all that is left, in the end', () => {
  expect(namesOf(inOrder([file('node1', 5), file('node2', 5), file('a', 1)], 4))).toBe('node1 a node2')
})
