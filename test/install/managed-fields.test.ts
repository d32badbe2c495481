import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { mapped, moved, resource, z } from '#sdk'
import { managedFieldsWithout } from '../../cli/install/managed-fields.ts'

const byName = { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] }
const ports = z.array(z.object({ name: z.string(), port: z.int32() })).meta(byName)
const tags = z.array(z.string()).meta({ 'x-kubernetes-list-type': 'set' })
const Page = resource({
  group: 'pages.test',
  version: 'v1',
  kind: 'Page',
  plural: 'pages',
  spec: z.object({
    http: z.object({ url: z.string(), ports: ports.optional() }),
    tags: tags.optional(),
    note: z.string(),
  }),
  status: z.object({ ready: z.int32() }),
  served: [
    {
      version: 'v1beta1',
      spec: z.object({ url: z.string(), ports: ports.optional(), tags: tags.optional(), note: z.string() }),
      convert: [
        moved('.spec.url', '.spec.http.url'),
        moved('.spec.ports', '.spec.http.ports'),
        mapped(
          '.spec.note',
          '.spec.note',
          (note: string) => refused(note),
          (note: string) => note,
        ),
      ],
    },
  ],
})
function refused(note: string): string {
  if (note === 'bad') throw new Error('bad')
  return note
}

const entry = (manager: string, version: string, fieldsV1: object, operation = 'Apply') => ({
  manager,
  operation,
  apiVersion: `pages.test/${version}`,
  fieldsType: 'FieldsV1',
  fieldsV1,
})
const objectWith = (managedFields: object[], note = 'n') =>
  ({
    apiVersion: 'pages.test/v1',
    kind: 'Page',
    metadata: { name: 'a', managedFields },
    spec: {
      http: {
        url: 'u',
        ports: [
          { name: 'x', port: 1 },
          { name: 'y', port: 2 },
        ],
      },
      tags: ['s', 't'],
      note,
    },
    status: { ready: 1 },
  }) as unknown as KubeObject
const without = (managedFields: object[], note?: string) =>
  managedFieldsWithout(Page, ['v1beta1'], objectWith(managedFields, note))

it('what a manager has of an old version is what its conversion gives, and no more', () => {
  const old = {
    'f:metadata': { 'f:labels': { 'f:a': {} } },
    'f:spec': {
      'f:url': {},
      'f:ports': { 'k:{"name":"y"}': { '.': {}, 'f:name': {}, 'f:port': {} } },
      'f:tags': { 'v:"t"': {} },
    },
    'f:status': { 'f:ready': {} },
  }
  expect(without([entry('gitops', 'v1beta1', old)])).toEqual([
    entry('gitops', 'v1', {
      'f:metadata': { 'f:labels': { 'f:a': {} } },
      'f:spec': {
        'f:http': { 'f:url': {}, 'f:ports': { 'k:{"name":"y"}': { '.': {}, 'f:name': {}, 'f:port': {} } } },
        'f:tags': { 'v:"t"': {} },
      },
      'f:status': { 'f:ready': {} },
    }),
  ])
})

it('a manager that has written in both versions has the fields of both', () => {
  const both = [
    entry('kubectl', 'v1beta1', { 'f:spec': { 'f:url': {} } }, 'Update'),
    entry('kubectl', 'v1', { 'f:spec': { 'f:note': {} } }, 'Update'),
  ]
  expect(without(both)).toEqual([
    entry('kubectl', 'v1', { 'f:spec': { 'f:http': { 'f:url': {} }, 'f:note': {} } }, 'Update'),
  ])
})

it('a part that does not convert leaves the metadata, and the other managers as they are', () => {
  const other = entry('other', 'v1', { 'f:spec': { 'f:tags': {} } })
  const fields = { 'f:metadata': { 'f:labels': {} }, 'f:spec': { 'f:note': {} } }
  expect(without([entry('gitops', 'v1beta1', fields), other], 'bad')).toEqual([
    entry('gitops', 'v1', { 'f:metadata': { 'f:labels': {} } }),
    other,
  ])
  expect(without([entry('gitops', 'v1beta1', { 'f:spec': { 'f:note': {} } })], 'bad')).toEqual([{}])
})

it('an object that no manager has written in the version takes no write', () => {
  expect(without([entry('gitops', 'v1', { 'f:spec': { 'f:note': {} } })])).toBeUndefined()
})
