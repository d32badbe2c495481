import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, describe } from 'vitest'
import { memcached } from '#functions/memcached'
import { visitors } from '#functions/visitors'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { memcachedOnNode } from './memcached.ts'
import { visitorsOnNode } from './visitors.ts'

/** A cluster that all of these tests share, since the start of a node takes longer than most of them. */
export interface Scene {
  operators: RunningOperators
  kubectl: Kubectl
}

const turn = await takeTurnWithNode()
afterAll(turn.end)

let scene: Scene
beforeAll(async () => {
  const node = turn.skip ? 'kwok' : 'real'
  const operators = await runOperators([visitors, memcached], { controllers: true, node, timeoutSeconds: 240 })
  scene = { operators, kubectl: await kubectlFor(operators.cluster!) }
})
afterAll(() => scene?.operators[Symbol.asyncDispose]())

describe.skipIf(turn.skip)('VisitorsApps on a real node', () => {
  visitorsOnNode(() => scene)
})

describe(`a Memcached on a ${turn.skip ? 'pretended' : 'real'} node`, () => {
  memcachedOnNode(() => scene, { pretended: turn.skip })
})
