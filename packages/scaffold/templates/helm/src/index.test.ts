import { deepEqual } from 'node:assert/strict'
import { test } from 'node:test'
import { outcomeOf } from 'fairlead/testing'
import { functions } from './index.ts'

for (const one of functions) {
  const { group, version, kind } = one.for
  const object = { apiVersion: `${group}/${version}`, kind, metadata: { name: 'a', namespace: 'default' }, spec: {} }

  test(`a ${kind} without values has what its chart makes`, async () => {
    const { conditions = [] } = await outcomeOf(one, { object })
    deepEqual(
      conditions.filter(({ type, status }) => type === 'ReleaseFailed' && status !== null),
      [],
    )
  })
}
