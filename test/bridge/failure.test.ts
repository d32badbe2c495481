import { expect, it } from 'vitest'
import { ApiError } from '#kube'
import { classify, isStarting } from '../../bridge/watch-state.ts'

const refusal = (message: string) =>
  classify(new ApiError('watch', { apiVersion: 'v1', kind: 'Status', code: 429, reason: 'TooManyRequests', message }))

it('tells a resource whose storage only starts from one that goes on refusing, and from a busy server', () => {
  const starting = refusal('storage is (re)initializing')
  expect([1, 2, 3].map((attempt) => isStarting(starting, attempt))).toEqual([true, true, false])
  expect(isStarting(refusal('too many requests'), 1)).toBe(false)
})
