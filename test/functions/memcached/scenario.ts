import { Memcached } from '#functions/memcached'
import { Deployment, Pod } from '#sdk'
import { deploymentsRun, type Scenario } from '#testing'

export const cache = (name: string, spec: Parameters<typeof Memcached.of>[0]['spec'] = {}) =>
  Memcached.of({ metadata: { name, namespace: 'default' }, spec })

/** What may happen to a Memcached. */
export const scenario: Scenario = {
  objects: [cache('a')],
  cluster: deploymentsRun,
  steps: [
    [
      ['it grows', (world) => world.edit({ spec: { size: 5 } })],
      ['its image changes', (world) => world.edit({ spec: { image: 'memcached:2' } })],
      ['its Deployment is deleted', (world) => world.delete(Deployment)],
    ],
    ['a pod is deleted', (world) => world.delete(Pod, 'a-0')],
    ['it shrinks', (world) => world.edit({ spec: { size: 1 } })],
    ['it is deleted', (world) => world.delete()],
  ],
}
