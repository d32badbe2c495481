import { describe, expect, it } from 'vitest'
import { decide } from '../../../../functions/etcd/operator/decide.ts'
import { explore } from './explore.ts'
import { mutations } from './mutations.ts'

describe('without the guards of etcd', () => {
  it.each(mutations)('the guard holds: $guard', ({ scenario, disturbances }) => {
    const subject = { decide, isStrict: false }
    expect(explore({ ...scenario, subject }, disturbances, 9).fault).toBeUndefined()
  })

  it.each(mutations)('a law is broken where the guard is away: $guard', ({ scenario, disturbances, breaks }) => {
    expect(explore(scenario, disturbances).fault).toMatch(breaks)
  })
})
