import { equal } from 'node:assert/strict'
import { test } from 'node:test'
import { Namespace, ResourceQuota } from 'fairlead'
import { lawsOf, type Scenario, simulate } from 'fairlead/testing'
import { namespaceDefaults } from './namespace-defaults.ts'

const shop = Namespace.of({ metadata: { name: 'shop', labels: { team: 'shop' } } })

test('a large team gets more pods', async () => {
  const world = simulate(namespaceDefaults, { objects: [shop] })
  await world.runUntilIdle()
  equal(world.list(ResourceQuota)[0]?.spec?.hard?.['pods'], '20')
  world.edit({ metadata: { labels: { size: 'large' } } })
  await world.runUntilIdle()
  equal(world.list(ResourceQuota)[0]?.spec?.hard?.['pods'], '200')
})

const scenario: Scenario = {
  objects: [shop],
  steps: [['its quota is deleted', (world) => world.delete(ResourceQuota)]],
}
for (const [law, holds] of lawsOf(namespaceDefaults, scenario)) test(law, holds)
