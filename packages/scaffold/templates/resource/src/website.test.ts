import { deepEqual, equal } from 'node:assert/strict'
import { test } from 'node:test'
import { ConfigMap, Deployment } from 'fairlead'
import { deploymentsRun, lawsOf, outcomeOf, type Scenario, simulate } from 'fairlead/testing'
import { Website, website } from './website.ts'

const hello = Website.of({ metadata: { name: 'hello', namespace: 'default' }, spec: { html: 'hello' } })

test('starts as not ready', async () => {
  deepEqual((await outcomeOf(website, { object: hello })).status, { ready: 0 })
})

test('serves the page that the spec has', async () => {
  const world = simulate(website, { objects: [hello], cluster: deploymentsRun })
  await world.runUntilIdle()
  world.edit({ spec: { html: 'bye' } })
  await world.runUntilIdle()
  equal(world.list(ConfigMap)[0]?.data?.['index.html'], 'bye')
})

// A second run writes nothing, a crash before any write changes nothing, and more: each law is a test.
const scenario: Scenario = {
  objects: [hello],
  cluster: deploymentsRun,
  steps: [
    ['it has another page', (world) => world.edit({ spec: { html: 'bye' } })],
    ['it grows', (world) => world.edit({ spec: { replicas: 3 } })],
    ['its Deployment is deleted', (world) => world.delete(Deployment)],
  ],
}
for (const [law, holds] of lawsOf(website, scenario)) test(law, holds)
