import { assert, property, string } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { resourcePath } from '#kube'

const pods = { group: '', version: 'v1', resource: 'pods' }
const ats = { group: 'cnat.programming-kubernetes.info', version: 'v1alpha1', resource: 'ats' }
const roles = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'clusterroles' }

describe('the path of a resource', () => {
  it.each([
    [[pods], '/api/v1/pods'],
    [[pods, 'default'], '/api/v1/namespaces/default/pods'],
    [[pods, 'default', 'a', 'log'], '/api/v1/namespaces/default/pods/a/log'],
    [[ats, 'x', 'y', 'status'], '/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/x/ats/y/status'],
    [[roles, undefined, 'system:node'], '/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode'],
  ] as [Parameters<typeof resourcePath>, string][])('of %j is %s', (given, path) => {
    expect(resourcePath(...given)).toBe(path)
  })

  it('never names another object than the one asked for, nor a collection', () => {
    assert(
      property(string({ unit: 'grapheme-composite' }), (name) => {
        let path: string
        try {
          path = resourcePath(pods, 'default', name)
        } catch {
          return
        }
        const segments = new URL(path, 'https://server').pathname.split('/')
        expect(segments).toHaveLength(7)
        expect(decodeURIComponent(segments[6] ?? '')).toBe(name)
      }),
    )
  })

  it.each(['', '.', '..', 'a/b', '\ud800'])('refuses the name %j', (name) => {
    expect(() => resourcePath(pods, 'default', name)).toThrow('cannot be the name in an API path')
    expect(() => resourcePath(pods, name)).toThrow('cannot be the namespace in an API path')
  })

  it.each(['..', 'v1/secrets?x='])('refuses the version %j, and the group', (text) => {
    expect(() => resourcePath({ ...pods, version: text })).toThrow('cannot be the version in an API path')
    expect(() => resourcePath({ ...ats, group: text })).toThrow('cannot be the group in an API path')
  })
})
