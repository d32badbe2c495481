import { describe, expect, it } from 'vitest'
import { Deployment, type Finding, type KubeObject, type Resource, reconciler, resource, z } from '#sdk'
import { outcomeOf, simulate } from '#testing'

const spec = z.object({
  from: z.int32(),
  to: z.int32(),
  labels: z.record(z.string(), z.string()).optional(),
  ports: z.array(z.object({ port: z.int32() })).optional(),
})
type Spec = z.output<typeof spec>
type Change = { spec: Spec; old?: Spec | undefined }
const range = (validate: (change: Change) => readonly Finding[]): Resource =>
  resource({
    group: 'example.com',
    version: 'v1',
    kind: 'Range',
    plural: 'ranges',
    spec,
    status: z.object({ size: z.int32().optional() }),
    validate,
  })
const above: Finding = { path: '.spec.from', message: 'it is above spec.to' }
const ordered = ({ spec: { from, to, ports = [] } }: Change): Finding[] => [
  ...(from > to ? [above] : []),
  ...ports.flatMap(({ port }, at) => (port > 0 ? [] : [{ path: `.spec.ports[${at}].port`, message: 'none' }])),
]
const Ordered = range(ordered)
const object = (from: number, to: number): KubeObject =>
  Ordered.of({ metadata: { name: 'a', namespace: 'default' }, spec: { from, to } })

describe('validate of a resource', () => {
  it('gives all that it finds, apart from what it warns of', () => {
    const Two = range(() => [above, { path: '.spec.ports[1].port', message: 'old', warning: true }, above])
    const refusal = { path: 'spec.from', message: above.message, reason: 'FieldValueInvalid' }
    expect(Two.validate?.({ spec: { from: 1, to: 0 } })).toEqual({
      refusals: [refusal, refusal],
      warnings: [{ path: 'spec.ports[1].port', message: 'old', reason: 'FieldValueInvalid' }],
    })
  })

  it('may quote a text that a user has written, in one line that is not too long', () => {
    const text = `${'x'.repeat(200_000)}\nno cron`
    const Quoting = range(() => [
      { path: '.spec.from', message: 'no\r\ncron' },
      { path: '.spec.to', message: text },
    ])
    const { refusals } = Quoting.validate?.({ spec: { from: 1, to: 0 } }) ?? { refusals: [] }
    expect(refusals.map(({ message }) => message)).toEqual(['no  cron', 'x'.repeat(1024)])
  })

  it('is not there if the declaration has none', () => {
    const { validate, ...names } = { validate: undefined, group: 'example.com', version: 'v1', kind: 'A', plural: 'as' }
    expect(resource({ ...names, spec, status: z.object({}) })).not.toHaveProperty('validate')
    expect(validate).toBeUndefined()
  })

  it('gets a copy, so what it writes there changes nothing', () => {
    const Writer = range((change) => {
      change.spec.to = 7
      return []
    })
    expect(Writer.parseValid(object(1, 2)).spec).toEqual({ from: 1, to: 2 })
  })

  it.each<[string, Change, string[]]>([
    ['what is refused since the write', { spec: { from: 3, to: 2 }, old: { from: 1, to: 2 } }, ['spec.from']],
    [
      'what was refused before, with another value',
      { spec: { from: 4, to: 2 }, old: { from: 3, to: 2 } },
      ['spec.from'],
    ],
    [
      'nothing that was refused before, in a write of another field',
      { spec: { from: 3, to: 1 }, old: { from: 3, to: 2 } },
      [],
    ],
    ['nothing in a write that leaves the spec', { spec: { from: 3, to: 2 }, old: { from: 3, to: 2 } }, []],
    [
      'nothing that was refused before, elsewhere in its list',
      { spec: { from: 1, to: 2, ports: [{ port: 0 }] }, old: { from: 1, to: 2, ports: [{ port: 1 }, { port: 0 }] } },
      [],
    ],
    [
      'what is refused once more than before',
      { spec: { from: 1, to: 2, ports: [{ port: 0 }, { port: 0 }] }, old: { from: 1, to: 2, ports: [{ port: 0 }] } },
      ['spec.ports[1].port'],
    ],
  ])('refuses, in a change, %s', (_, change, paths) => {
    expect(Ordered.validate?.(change).refusals.map(({ path }) => path)).toEqual(paths)
  })

  it('may refuse a change for the spec before it, but not one that changes nothing', () => {
    const Once = range(({ old }) => (old === undefined ? [] : [{ path: ".spec.labels['a/b']", message: 'no changes' }]))
    const labels = { 'a/b': 'c' }
    expect(Once.validate?.({ spec: { from: 1, to: 2 } }).refusals).toEqual([])
    expect(Once.validate?.({ spec: { from: 1, to: 2 }, old: { from: 0, to: 2 } }).refusals).toHaveLength(1)
    expect(Once.validate?.({ spec: { from: 1, to: 2, labels }, old: { from: 1, to: 2, labels } }).refusals).toEqual([])
  })

  it.each<[string, unknown, string]>([
    ['throws', () => (undefined as unknown as { a: string }).a, 'validate throws TypeError: Cannot read properties'],
    ['throws no Error', () => raise('no'), 'validate throws no'],
    ['returns a Promise', async () => [above], 'validate returns a Promise'],
    ['returns a Promise that rejects', async () => raise(new Error('no')), 'validate returns a Promise'],
    ['returns nothing', () => undefined, 'validate returns no list of findings: the list is missing'],
    ['names no path', () => [{ path: 'spec.to', message: 'a' }], 'the list[0].path is "spec.to": write .spec.ports'],
    ['names a path of the status', () => [{ path: '.status.a', message: 'a' }], 'the list[0].path is ".status.a"'],
    ['has no message', () => [{ path: '.spec.to', message: ' ' }], 'the list[0].message is " ": write one line'],
    ['misspells a field', () => [{ path: '.spec.to', message: 'a', warn: true }], 'the list[0] is {…}'],
  ])('that %s is a bug of the resource, which the error names', (_, validate, message) => {
    const Bad = range(validate as (change: Change) => Finding[])
    expect(() => Bad.validate?.({ spec: { from: 1, to: 2 } })).toThrow('resource Range: ')
    expect(() => Bad.validate?.({ spec: { from: 1, to: 2 } })).toThrow(message)
  })

  it('is refused at the declaration if it is no function', () => {
    expect(() => range([] as never)).toThrow('resource Range: validate is []: give a function')
  })
})

function raise(what: unknown): never {
  throw what
}

describe('a function whose resource has validate', () => {
  const ranges = (kind: Resource, called: (name: string) => unknown = () => {}) =>
    reconciler({
      name: 'ranges',
      for: kind,
      owns: [Deployment],
      reconcile: ({ object: { metadata, spec: wanted } }) => {
        called('reconcile')
        const replicas = (wanted as Spec).to
        return {
          apply: [Deployment.of({ metadata: { name: metadata.name }, spec: { replicas } as never })],
          status: { size: replicas },
        }
      },
      finalize: () => {
        called('finalize')
        return {}
      },
    })

  it('is not called for a spec that validate refuses: the condition has each refusal, and what the function owns stays', async () => {
    const called: string[] = []
    const Strict = range((change) => [
      ...ordered(change),
      ...(change.spec.to > 5 ? [{ path: '.spec.to', message: 'above 5' }] : []),
    ])
    const world = simulate(
      ranges(Strict, (name) => called.push(name)),
      { objects: [object(1, 2)] },
    )
    await world.runUntilIdle()
    const before = world.list(Deployment)
    const { length } = called
    world.edit({ spec: { from: 9, to: 8 } })
    await world.runUntilIdle()
    expect(called).toHaveLength(length)
    expect(world.list(Deployment)).toEqual(before)
    expect(world.object?.status).toMatchObject({ size: 2 })
    expect(world.object?.status?.conditions).toContainEqual(
      expect.objectContaining({
        type: 'Reconciled',
        status: 'False',
        reason: 'InvalidObject',
        message: 'spec.from: it is above spec.to; spec.to: above 5',
      }),
    )
    world.edit({ spec: { from: 1, to: 3 } })
    await world.runUntilIdle()
    expect(called.length).toBeGreaterThan(length)
    expect(world.list(Deployment)[0]?.spec?.replicas).toBe(3)
  })

  it('is called for its finalizer all the same', async () => {
    const called: string[] = []
    const world = simulate(
      ranges(Ordered, (name) => called.push(name)),
      { objects: [object(1, 2)] },
    )
    await world.runUntilIdle()
    world.edit({ spec: { from: 9, to: 8 } })
    await world.runUntilIdle()
    called.length = 0
    world.delete()
    await world.runUntilIdle()
    expect(new Set(called)).toEqual(new Set(['finalize']))
    expect(world.object).toBeUndefined()
  })

  it('is called with a related object of the kind that validate refuses', async () => {
    const Reader = resource({
      group: 'example.com',
      version: 'v1',
      kind: 'Reader',
      plural: 'readers',
      spec: z.object({}),
      status: z.object({ seen: z.int32() }),
    })
    const reader = reconciler({
      name: 'reader',
      for: Reader,
      related: [{ ...Ordered, selector: 'a' }],
      reconcile: ({ related }) => ({ status: { seen: related({ ...Ordered, selector: 'a' }).length } }),
    })
    const wrong = { ...object(9, 8), metadata: { name: 'a', namespace: 'default', labels: { a: '' } } }
    const { status } = await outcomeOf(reader, {
      object: Reader.of({ metadata: { name: 'r', namespace: 'default' }, spec: {} }),
      others: [wrong],
    })
    expect(status).toEqual({ seen: 1 })
  })

  it('fails as for its own error if validate throws, and no object is called wrong', async () => {
    const world = simulate(ranges(range(() => raise(new RangeError('a bug')))), { objects: [object(1, 2)] })
    await world.run()
    expect(world.failure?.message).toContain('resource Range: validate throws RangeError: a bug')
    expect(world.timer).toBeDefined()
    expect(JSON.stringify(world.object?.status ?? {})).not.toContain('InvalidObject')
  })
})
