import { describe, expect, it } from 'vitest'
import { PRODUCTION, SMALL } from './model/configs.ts'
import { explore } from './model/explore.ts'
import { counterexample, figures } from './model/report.ts'

describe('every history of one key keeps the laws of the queue', () => {
  it.each(Object.entries(SMALL))('%s', (name, config) => {
    const result = explore(PRODUCTION, config)
    console.log(`${name}: ${figures(result)}`)
    expect(counterexample(result)).toBeUndefined()
  })
})
