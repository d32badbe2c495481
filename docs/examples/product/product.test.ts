import { Deployment, grantKinds, kind } from 'fairlead'
import { given, lawsOf, type Scenario } from 'fairlead/testing'
import { describe, it } from 'vitest'
import { Product, product } from './product.ts'

const Certificate = kind({ group: 'cert-manager.io', version: 'v1', kind: 'Certificate', plural: 'certificates' })
const granted = grantKinds(product, [Deployment, Certificate])

const metadata = { namespace: 'default' }
const parts = [
  { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' },
  { apiVersion: 'cert-manager.io/v1', kind: 'Certificate', name: 'web' },
]
const object = Product.of({ metadata: { ...metadata, name: 'shop' }, spec: { parts } })
const certificate = (status: 'True' | 'False') => ({
  ...Certificate.of({ metadata: { ...metadata, name: 'web' } }),
  status: { conditions: [{ type: 'Ready', status, message: 'waits for DNS' }] },
})
const web = Deployment.of({ metadata: { ...metadata, name: 'web' }, status: {} })

describe('a Product', () => {
  it.each([
    given('a part that does not exist', granted, { object, others: [certificate('True')] }).returns({
      status: { ready: '1/2' },
      conditions: [{ status: 'False', message: 'Deployment web: it does not exist yet' }],
    }),
    given('a part whose kind is not granted', product, { object }).throws('--kinds Deployment.v1.apps=PLURAL'),
  ])('%s', async (_, holds) => holds())
})

const scenario: Scenario<typeof Product> = {
  objects: [object, certificate('False'), web],
  steps: [
    [
      'a part gets ready',
      (world) => world.patch(Certificate, { status: { conditions: [{ type: 'Ready', status: 'True' }] } }),
    ],
    ['a part goes', (world) => world.delete(Deployment)],
  ],
}
describe('a Product keeps the laws', () => {
  it.each(lawsOf(granted, scenario))('%s', async (_, holds) => holds())
})
