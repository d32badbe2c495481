import { describe, expect, it } from 'vitest'
import { isRelated, type KubeObject, namesAt } from '#contracts'

const app = (more: object = {}): KubeObject => ({
  apiVersion: 'test.fairlead.dev/v1',
  kind: 'App',
  metadata: { name: 'a', namespace: 'here', ...more },
  spec: { secretName: 's', volumes: [{ claim: 'x' }, { claim: 'y' }, { size: 1 }, 'odd'], size: 3 },
})
const secret = (name: string, more: object = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name, namespace: 'here', ...more },
})

describe('the names at a path', () => {
  it.each([
    ['.spec.secretName', ['s']],
    ['.spec.volumes[*].claim', ['x', 'y']],
    ['.spec.size', []],
    ['.spec.absent.name', []],
    ['.spec.constructor.name', []],
  ])('%s', (path, names) => {
    expect([...namesAt(app(), path)]).toEqual(names)
  })
})

describe('an object is related', () => {
  it.each([
    ['in the namespace of the primary', {}, app(), secret('any'), true],
    ['not in another one', {}, app(), secret('any', { namespace: 'there' }), false],
    ['in any namespace when the primary is cluster-scoped', {}, app({ namespace: undefined }), secret('any'), true],
    ['when it is cluster-scoped', {}, app(), secret('any', { namespace: undefined }), true],
    ['when the primary names it', { byName: '.spec.secretName' }, app(), secret('s'), true],
    ['not when the primary names another', { byName: '.spec.secretName' }, app(), secret('t'), false],
    ['when the selector matches', { selector: 'a=b' }, app(), secret('t', { labels: { a: 'b' } }), true],
    ['not when it does not', { selector: 'a=b' }, app(), secret('t'), false],
  ])('%s', (_, related, primary, object, expected) => {
    expect(isRelated(related, primary, object)).toBe(expected)
  })
})
