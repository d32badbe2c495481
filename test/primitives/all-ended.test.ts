import { expect, it } from 'vitest'
import { allEnded } from '#primitives'

it('gives the results of all, in their order', async () => {
  expect(await allEnded([Promise.resolve('a'), 1, undefined])).toEqual(['a', 1, undefined])
})

it('fails as one of them has failed, and not before the others have ended', async () => {
  let end: (() => void) | undefined
  const slow = new Promise<void>((resolve) => {
    end = resolve
  })
  let isRejected = false
  const work = allEnded([Promise.reject(new Error('refused')), slow]).catch((error: unknown) => {
    isRejected = true
    return error
  })
  await new Promise(setImmediate)
  expect(isRejected).toBe(false)
  end?.()
  expect(await work).toEqual(new Error('refused'))
})
