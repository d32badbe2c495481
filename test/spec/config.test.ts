import { expect, it } from 'vitest'
import { isRefused, readReconciler } from '#spec'

const value = { name: 'token', secret: { name: 'provider', key: 'token' } }
const spec = {
  invoke: { pull: {} },
  for: { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' },
  serviceAccount: { name: 'widgets', namespace: 'team' },
}
const reading = (config: unknown, more: object = {}) => {
  const object = { apiVersion: 'v1', kind: 'Reconciler', metadata: { name: 'a' } }
  const read = readReconciler({ ...object, spec: { ...spec, ...more, external: { config } } })
  return isRefused(read) ? read.message : 'taken'
}

it.each<[string, unknown, RegExp]>([
  ['a key of a Secret', [value], /^taken$/],
  ['a key of a ConfigMap', [{ name: 'zone', configMap: { name: 'zones', key: 'zone.txt' } }], /^taken$/],
  ['a token for an audience', [{ name: 'cloud', audience: 'https://sts.example.com' }], /^taken$/],
  ['no source', [{ name: 'token' }], /give one of secret, configMap and audience/],
  ['two sources', [{ ...value, audience: 'a' }], /give one of secret, configMap and audience/],
  ['a name twice', [value, value], /two values have the same name/],
  ['a name that leads out of its folder', [{ ...value, name: '../token' }], /spec\.external\.config\.0\.name/],
  ['a Secret of another path', [{ ...value, secret: { name: 'a/b', key: 'c' } }], /config\.0\.secret\.name/],
  ['an empty list', [], /spec\.external\.config/],
])('a function is configured by %s, or refused with the path', (_, config, message) => {
  expect(reading(config)).toMatch(message)
})

it('a Reconciler without an account has no values: the dispatcher reads none with its own rights', () => {
  expect(reading([value], { serviceAccount: undefined })).toMatch(/give spec\.serviceAccount/)
})
