import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { isRefused, readReconciler } from '#spec'
import { askedBy, isDeclared, isForItself, type Method } from '../../cli/agent/rights.ts'

const APPS = { group: 'apps', version: 'v1' }
const CORE = { group: '', version: 'v1' }

function declared(name: string, spec: object) {
  const metadata = { name, uid: name, generation: 1 }
  const object = { apiVersion: 'fairlead.dev/v1alpha1', kind: 'Reconciler', metadata, spec } as unknown as KubeObject
  const read = readReconciler(object)
  if (isRefused(read)) throw new Error(read.message)
  return { name, spec: read }
}

const account = (name: string, namespace = 'fairlead-system') => ({ name, namespace })
const userOf = (name: string, namespace = 'fairlead-system') => `system:serviceaccount:${namespace}:${name}`

const RECONCILERS = [
  declared('web', {
    for: { group: 'example.com', version: 'v1', resource: 'webs', kind: 'Web', namespaces: ['shop'] },
    owns: [
      { ...APPS, resource: 'deployments', kind: 'Deployment' },
      { ...CORE, resource: 'pods', kind: 'Pod', strategy: 'CreateOnly' },
    ],
    related: [{ ...CORE, resource: 'nodes', kind: 'Node', within: 'Cluster' }],
    acts: [{ act: 'Evict', ...CORE, resource: 'pods', kind: 'Pod' }],
    external: {
      config: [
        { name: 'password', secret: { name: 'db', key: 'password' } },
        { name: 'token', audience: 'vault' },
      ],
    },
    invoke: { pull: {} },
    serviceAccount: account('fairlead-web'),
  }),
  declared('all', {
    for: { ...CORE, resource: 'namespaces', kind: 'Namespace' },
    invoke: { pull: {} },
    serviceAccount: account('fairlead-all'),
  }),
  declared('nobody', { for: { ...CORE, resource: 'secrets', kind: 'Secret' }, invoke: { pull: {} } }),
]

function isSent(method: Method, target: string, user = userOf('fairlead-web')): boolean {
  const asked = askedBy(method, target)
  return typeof asked !== 'string' && isDeclared(RECONCILERS, user, asked)
}

const SHOP = '/apis/apps/v1/namespaces/shop'

describe('an agent', () => {
  it.each<[Method, string, string?]>([
    ['PATCH', `${SHOP}/deployments/a?fieldManager=fairlead-web&force=true`],
    ['POST', '/api/v1/namespaces/shop/pods?fieldManager=x'],
    ['DELETE', `${SHOP}/deployments/a`],
    ['GET', '/apis/example.com/v1/namespaces/shop/webs/a'],
    ['PATCH', '/apis/example.com/v1/namespaces/shop/webs/a/status'],
    ['POST', '/api/v1/namespaces/shop/pods/a/eviction'],
    ['GET', '/api/v1/nodes/a'],
    ['GET', '/api/v1/namespaces/fairlead-system/secrets/db'],
    ['POST', '/apis/events.k8s.io/v1/namespaces/shop/events'],
    ['PATCH', '/api/v1/namespaces/shop/status', userOf('fairlead-all')],
  ])('sends what the Reconciler of the account declares: %s %s', (method, target, user) => {
    expect(isSent(method, target, user)).toBe(true)
  })

  it.each<[Method, string, string?]>([
    ['PATCH', '/apis/apps/v1/namespaces/other/deployments/a'],
    ['PATCH', '/api/v1/namespaces/shop/pods/a'],
    ['PATCH', '/apis/example.com/v1/namespaces/shop/webs/a'],
    ['PATCH', `${SHOP}/deployments/a/scale`],
    ['POST', '/api/v1/namespaces/shop/pods/a/exec'],
    ['POST', '/api/v1/namespaces/shop/pods/a/eviction/x'],
    ['GET', `${SHOP}/deployments`],
    ['DELETE', `${SHOP}/deployments`],
    ['PATCH', '/api/v1/nodes/a'],
    ['GET', '/api/v1/namespaces/fairlead-system/secrets/other'],
    ['GET', '/api/v1/namespaces/shop/secrets/db'],
    ['POST', '/api/v1/namespaces/fairlead-system/serviceaccounts/fairlead-web/token'],
    ['PATCH', `${SHOP}/deployments/a`, userOf('fairlead-all')],
    ['PATCH', `${SHOP}/deployments/a`, userOf('fairlead-web', 'shop')],
    ['PATCH', `${SHOP}/deployments/a`, userOf('undefined', 'undefined')],
    ['GET', '/api/v1/namespaces/shop/secrets/a', userOf('undefined', 'undefined')],
  ])('does not send what it does not declare: %s %s', (method, target, user) => {
    expect(isSent(method, target, user)).toBe(false)
  })

  it.each([
    `${SHOP}/deployments/../pods`,
    `${SHOP}/deployments/%2e%2e`,
    `${SHOP}/deployments/%2E`,
    `${SHOP}/deployments%2Fa`,
    `${SHOP}/deployments/a%2F..%2Fb`,
    `${SHOP}/deployments/a%`,
    `${SHOP}/deployment%73/a`,
    `${SHOP}//deployments/a`,
    `${SHOP}/deployments/a/`,
    `/${SHOP}/deployments/a`,
    `https://127.0.0.1${SHOP}/deployments/a`,
    `${SHOP}/deployments/a#`,
    `${SHOP}/deployments/a b`,
    `${SHOP}/deployments/a\r\nx: y`,
    `${SHOP}/deployments/a;x=y`,
    `${SHOP}\\deployments\\a`,
    `${SHOP}/deployments/a?watch=true`,
    `${SHOP}/deployments/a?force=true&force=false`,
    `${SHOP}/deployments/a?force=true?force=false`,
    `${SHOP}/deployments/a?FORCE=true`,
    '/apis/apps/v1/watch/namespaces/shop/deployments/a',
    '/apis',
    '/api/v1',
    '/api/v1/',
    '/metrics',
    '/',
    '',
  ])('knows one way to write a path: %j', (target) => {
    for (const method of ['GET', 'POST', 'PATCH', 'DELETE'] as const) expect(isSent(method, target)).toBe(false)
  })

  it('sends three requests as itself', () => {
    const own = (method: Method, target: string) => {
      const asked = askedBy(method, target)
      return typeof asked !== 'string' && isForItself(asked)
    }
    expect(own('GET', '/api/v1/namespaces/kube-system')).toBe(true)
    expect(own('PATCH', '/apis/fairlead.dev/v1alpha1/reconcilers/web/status?fieldManager=fairlead')).toBe(true)
    for (const target of [
      '/api/v1/namespaces/kube-system/secrets/x',
      '/api/v1/namespaces/default',
      '/apis/fairlead.dev/v1alpha1/reconcilers/web',
      '/apis/fairlead.dev/v1alpha1/namespaces/x/reconcilers/web/status',
    ])
      for (const method of ['GET', 'PATCH', 'POST', 'DELETE'] as const)
        expect([target, own(method, target)]).toEqual([target, false])
  })
})
