import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { ConfigMap, kind, reconciler, resource, Secret, ServiceAccount, z } from 'fairlead'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TenantDatabase } from '../../../docs/examples/tenant-database/resource.ts'
import { tenantDatabase } from '../../../docs/examples/tenant-database/tenant-database.ts'
import { examplesFolder, fileOf } from '../../docs/examples.ts'
import { exportsOf } from '../../docs/exports.ts'
import { until } from '../../support/wait.ts'

const Note = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Note',
  plural: 'notes',
  spec: z.object({ text: z.string() }),
  status: z.object({ length: z.int32() }),
})
const note = (text: string) => Note.of({ metadata: { name: 'a' }, spec: { text } })

const notes = reconciler({
  name: 'notes',
  for: Note,
  owns: [ConfigMap],
  reconcile: ({ object: { metadata, spec } }) => ({
    apply: [ConfigMap.of({ metadata: { name: metadata.name }, data: { text: spec.text } })],
    status: { length: spec.text.length },
  }),
})

const Door = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Door',
  plural: 'doors',
  spec: z.object({}),
  status: z.object({}),
})
const closed = reconciler({
  name: 'closed',
  for: Door,
  selector: 'open=false',
  reconcile: () => ({}),
  finalize: () => ({}),
})

const Namespace = kind({ group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces' })
const robots = reconciler({
  name: 'robots',
  for: Namespace,
  selector: 'robot',
  owns: [ServiceAccount],
  reconcile: ({ object: { metadata } }) => ({
    apply: [ServiceAccount.of({ metadata: { name: 'robot', namespace: metadata.name } })],
  }),
  finalize: () => ({}),
})

const mirror = reconciler({
  name: 'mirror',
  for: ConfigMap,
  selector: 'mirrored',
  changes: ['Generation'],
  owns: [Secret],
  reconcile: ({ object: { metadata, data = {} } }) => ({
    apply: [Secret.of({ metadata: { name: metadata.name }, stringData: data })],
  }),
})

interface Bad {
  name?: string
  spec?: object
}
/** A TenantDatabase as a user writes it, which no type checks. */
const tenant = (name: string, spec: object) => ({
  apiVersion: 'tenancy.example.com/v1alpha1',
  kind: 'TenantDatabase',
  metadata: { name },
  spec,
})

const EXAMPLES = exportsOf('./testing/cluster').filter(({ example }) => example?.includes('runOperators('))

describe('reconcilers on real servers of their own', () => {
  let operators: RunningOperators

  beforeAll(async () => {
    operators = await runOperators([notes, closed, robots, mirror, tenantDatabase])
  })
  afterAll(() => operators?.[Symbol.asyncDispose]())

  it('are served, and see what is created, changed and deleted', async () => {
    await operators.create(Note, note('hello'))
    await operators.until(ConfigMap, 'a', (found) => found?.data?.['text'] === 'hello')
    await operators.patch(Note, 'a', { spec: { text: 'hello world' } })
    await operators.until(Note, 'a', (found) => found?.status?.length === 11)
    await operators.delete(ConfigMap, 'a')
    await operators.until(ConfigMap, 'a', (found) => found?.data?.['text'] === 'hello world')
    expect((await operators.list(Note)).map(({ metadata }) => metadata.name)).toEqual(['a'])
  })

  it('let go of what leaves their selection, and take it up again', async () => {
    const relabel = async (open: string, finalizers: string[] | undefined) => {
      await operators.patch(Door, 'a', { metadata: { labels: { open } } })
      await operators.until(Door, 'a', (found) => isDeepStrictEqual(found?.metadata.finalizers, finalizers))
    }
    await operators.create(Door, Door.of({ metadata: { name: 'a' }, spec: {} }))
    await relabel('false', ['fairlead.dev/closed'])
    await relabel('true', undefined)
    await relabel('false', ['fairlead.dev/closed'])
  })

  it('are also of kinds that Kubernetes has: what it owns in a namespace belongs to that', async () => {
    const { kube } = operators
    const path = '/api/v1/namespaces/shop'
    await kube.create('/api/v1/namespaces', { metadata: { name: 'shop' } })
    await kube.patch(path, { metadata: { labels: { robot: 'yes' } } }, 'merge')
    await operators.until(ServiceAccount, 'robot', (found) => found !== undefined, 'shop')
    expect((await kube.get(path)).metadata.finalizers).toEqual(['fairlead.dev/robots'])
    await kube.patch(path, { metadata: { labels: { robot: null } } }, 'merge')
    const isReleased = async () => (await kube.get(path)).metadata.finalizers === undefined
    await until(isReleased, { leastMs: 50 })
  })

  it('see every change of a kind without generations, also where only these are to count', async () => {
    const holds = (text: string) =>
      operators.until(Secret, 'mirrored', (found) => found?.data?.['text'] === Buffer.from(text).toString('base64'))
    const metadata = { name: 'mirrored', labels: { mirrored: 'yes' } }
    await operators.create(ConfigMap, ConfigMap.of({ metadata, data: { text: 'one' } }))
    await holds('one')
    await operators.patch(ConfigMap, 'mirrored', { data: { text: 'two' } })
    await holds('two')
  })

  it.each([
    [
      'a plan that does not exist',
      { spec: { plan: 'huge' } },
      'Unsupported value: "huge": supported values: "small", "large"',
    ],
    ['a team that is named twice', { spec: { teams: ['web', 'web'] } }, 'Duplicate value: "web"'],
    ['an hour after 23', { spec: { backupHour: 24 } }, 'should be less than or equal to 23'],
    ['a name that no Service can have', { name: '1st' }, 'it is the name of a Service'],
  ])('reject, of the example of databases, %s', async (_, { name = 'acme', spec = {} }: Bad, message) => {
    await expect(operators.create(TenantDatabase, tenant(name, spec))).rejects.toThrow(message)
  })

  it('serve the example of databases, with the defaults that the API server sets', async () => {
    await operators.create(TenantDatabase, tenant('acme', { teams: ['web'] }))
    await operators.until(TenantDatabase, 'acme', (found) => found?.status?.phase === 'Provisioning')
    expect((await operators.get(TenantDatabase, 'acme'))?.spec).toMatchObject({
      plan: 'small',
      version: '1',
      backupHour: 2,
    })
  })

  it.each(EXAMPLES)('do what the example of $name shows, here on the servers of this file', async (example) => {
    const { kubeconfig, nats } = operators.cluster!
    const use = JSON.stringify({ use: { kubeconfig, natsUrl: nats?.url } })
    const onServers = (text: string) => text.replace('runOperators([website])', `runOperators([website], ${use})`)
    await using folder = await examplesFolder([example], onServers)
    await import(join(folder.dir, fileOf(example)))
  })
})
