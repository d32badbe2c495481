import { expect, it } from 'vitest'
import { Window } from '../../bridge/window.ts'

const deferred = () => Promise.withResolvers<void>()

it('runs tasks of one key in their order and those of others beside them', async () => {
  const window = new Window()
  const ran: string[] = []
  const gate = deferred()
  await window.admit('a', 10, () => gate.promise.then(() => void ran.push('a1')))
  await window.admit('a', 10, async () => void ran.push('a2'))
  await window.admit('b', 10, async () => void ran.push('b1'))
  await Promise.resolve()
  gate.resolve()
  await window.idle()
  expect(ran).toEqual(['b1', 'a1', 'a2'])
})

it('holds back who feeds it when it is full, even by one key', async () => {
  const window = new Window()
  const gate = deferred()
  await window.admit('a', 2, () => gate.promise)
  await window.admit('a', 2, async () => {})
  let admitted = false
  const third = window.admit('c', 2, async () => {}).then(() => (admitted = true))
  await new Promise(setImmediate)
  expect(admitted).toBe(false)
  expect(window.active).toBe(2)
  gate.resolve()
  await third
  await window.idle()
  expect(window.active).toBe(0)
})
