import { expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { command } from '../support/command.ts'

const PRODUCT = 'docs/examples/product/product.ts'
const rbac = (...kinds: string[]) => command(['generate', 'rbac', '-f', PRODUCT, ...kinds])

const rulesOf = (text: string, name: string): unknown =>
  parseAllDocuments(text)
    .map((one) => one.toJS() as { kind: string; metadata: { name: string }; rules?: unknown })
    .find(({ kind, metadata }) => kind === 'ClusterRole' && metadata.name === name)?.rules

it('--kinds grants the rights on these kinds, and on no others', async () => {
  const own = { apiGroups: ['products.example.com'], resources: ['products'], verbs: ['list', 'watch'] }
  const none = await rbac()
  expect(rulesOf(none.stdout, 'fairlead-product-watch')).toEqual([own])
  const two = await rbac('--kinds', 'Deployment.v1.apps=deployments,Secret.v1=secrets')
  expect(rulesOf(two.stdout, 'fairlead-product-watch')).toEqual([
    own,
    { apiGroups: ['apps'], resources: ['deployments'], verbs: ['list', 'watch'] },
    { apiGroups: [''], resources: ['secrets'], verbs: ['list', 'watch'] },
  ])
})

it('--kinds names what is no kind, and how to write one', async () => {
  const { code, stderr } = await rbac('--kinds', 'deployments.apps')
  expect(code).not.toBe(0)
  expect(stderr).toContain('"deployments.apps" is no kind: write KIND.VERSION.GROUP=PLURAL')
})
