import { expect, it } from 'vitest'
import { Room } from '../../bridge/room.ts'

const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

async function enterAll(room: Room, names: string[]) {
  const inside: string[] = []
  const leave = new Map<string, () => void>()
  for (const name of names)
    void room.enter().then((left) => {
      inside.push(name)
      leave.set(name, left)
    })
  await Promise.resolve()
  await Promise.resolve()
  return { inside, leave }
}

it('has room for so many, and lets in who waits in order', async () => {
  const { inside, leave } = await enterAll(new Room(2), ['a', 'b', 'c', 'd'])
  expect(inside).toEqual(['a', 'b'])
  leave.get('b')?.()
  leave.get('b')?.()
  await turn()
  expect(inside).toEqual(['a', 'b', 'c'])
})

it('lets in so many in a turn of the event loop, and the others in the next ones', async () => {
  const { inside } = await enterAll(new Room(10, { perTurn: 2 }), ['a', 'b', 'c', 'd', 'e'])
  expect(inside).toEqual(['a', 'b'])
  await turn()
  expect(inside).toEqual(['a', 'b', 'c', 'd'])
  await turn()
  expect(inside).toHaveLength(5)
})
