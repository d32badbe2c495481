import { describe, expect, it } from 'vitest'
import type { KubeObject, ResourceRef } from '#contracts'
import { asReference, IncompleteObjectError, objectEvent } from '#events'

const now = new Date('2026-01-02T03:04:05.678Z')
const event = (ref: ResourceRef, object: KubeObject, verb: 'added' | 'modified' | 'deleted' = 'modified') =>
  objectEvent({ cluster: 'c1', ref, verb, object, now })

const ats = { group: 'cnat.example.com', version: 'v1alpha1', resource: 'ats' }
const at: KubeObject = {
  apiVersion: 'cnat.example.com/v1alpha1',
  kind: 'At',
  metadata: {
    name: 'example',
    namespace: 'default',
    uid: 'u-1',
    resourceVersion: '12345',
    generation: 3,
    annotations: { 'kubectl.kubernetes.io/last-applied-configuration': '{}', team: 'x' },
    managedFields: [{ manager: 'kubectl' }],
  },
  spec: { command: 'echo YAY' },
}

describe('the CloudEvent of an object', () => {
  it('has the attributes of the contract', () => {
    const { managedFields: _, ...kept } = at.metadata
    const metadata = { ...kept, annotations: { team: 'x' } }
    expect(objectEvent({ cluster: 'c1', ref: ats, verb: 'added', object: at, now, traceparent: '00-1-2-01' })).toEqual({
      specversion: '1.0',
      id: 'u-1:12345:added',
      source: 'https://c1/apis/cnat.example.com/v1alpha1/ats',
      type: 'dev.fairlead.resource.added',
      subject: '/apis/cnat.example.com/v1alpha1/namespaces/default/ats/example',
      time: '2026-01-02T03:04:05.678Z',
      datacontenttype: 'application/json',
      apiversion: 'cnat.example.com/v1alpha1',
      kind: 'At',
      name: 'example',
      namespace: 'default',
      objectuid: 'u-1',
      resourceversion: '12345',
      generation: '3',
      partitionkey: 'cnat.example.com/ats/default/example',
      sequence: '00000000000000012345',
      traceparent: '00-1-2-01',
      data: { ...at, metadata },
    })
  })

  it('has the true API path of a cluster-scoped object of the core group, and no namespace', () => {
    const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1', uid: 'u', resourceVersion: '1' } }
    const made = event({ group: '', version: 'v1', resource: 'nodes' }, node)
    expect(made).toMatchObject({
      subject: '/api/v1/nodes/n1',
      source: 'https://c1/api/v1/nodes',
      partitionkey: '/nodes//n1',
    })
    expect(made).not.toHaveProperty('namespace')
    expect(made).not.toHaveProperty('generation')
  })

  it('escapes what a path cannot hold', () => {
    const role = {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'Role',
      metadata: { name: 'system:a b', namespace: 'x', uid: 'u', resourceVersion: '1' },
    }
    const { subject } = event({ group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'roles' }, role)
    expect(subject).toBe('/apis/rbac.authorization.k8s.io/v1/namespaces/x/roles/system:a%20b')
  })

  it('is the same twice: two bridges that see one change make one id', () => {
    expect(event(ats, at).id).toBe(event(ats, structuredClone(at)).id)
  })

  it('leaves the sequence out where resourceVersions are no numbers', () => {
    const odd = { ...at, metadata: { ...at.metadata, resourceVersion: 'abc' } }
    expect(event(ats, odd)).not.toHaveProperty('sequence')
  })

  it('says nothing of annotations where kubectl’s copy was the only one', () => {
    const annotations = { 'kubectl.kubernetes.io/last-applied-configuration': '{}' }
    expect(event(ats, { ...at, metadata: { ...at.metadata, annotations } }).data.metadata).not.toHaveProperty(
      'annotations',
    )
  })

  it('does not change the object', () => {
    const before = structuredClone(at)
    asReference(event(ats, at))
    expect(at).toEqual(before)
  })

  it.each(['uid', 'resourceVersion'])('is refused without %s', (field) => {
    const { [field]: _, ...metadata } = at.metadata
    expect(() => event(ats, { ...at, metadata: metadata as KubeObject['metadata'] })).toThrow(IncompleteObjectError)
  })
})

describe('a reference', () => {
  it('names the object and where to get it, without its content', () => {
    const { dataref, data } = asReference(event(ats, at))
    expect(dataref).toBe('/apis/cnat.example.com/v1alpha1/namespaces/default/ats/example')
    expect(Object.keys(data)).toEqual(['apiVersion', 'kind', 'metadata'])
  })

  it('has no annotations, where tools keep copies of whole objects', () => {
    expect(asReference(event(ats, at)).data.metadata).not.toHaveProperty('annotations')
  })
})
