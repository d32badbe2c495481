import { beforeEach, describe, expect, it } from 'vitest'
import { type Finding, type Resource, resource, type WriteRequest, z } from '#sdk'
import { admissionLawsOf } from '#testing'

const spec = z.object({
  from: z.int32().min(0).max(9),
  to: z.int32().min(0).max(9),
  unit: z.string().optional(),
  ports: z
    .array(z.object({ port: z.int32() }))
    .max(3)
    .optional(),
})
type Spec = z.output<typeof spec>
type Validate = (change: { spec: Spec; old?: Spec | undefined }) => readonly Finding[]
type Judge = (write: WriteRequest<Spec>) => readonly Finding[]
const declared = (checks: {
  validate?: Validate
  admit?: { operations: readonly ('UPDATE' | 'DELETE')[]; judge: Judge }
}): Resource =>
  resource({
    group: 'example.com',
    version: 'v1',
    kind: 'Range',
    plural: 'ranges',
    spec,
    status: z.object({}),
    ...checks,
  })
const range = (validate: Validate): Resource => declared({ validate })
const above: Finding = { path: '.spec.from', message: 'it is above spec.to' }
const example = (from: number, to: number) => range(() => []).of({ metadata: { name: 'a' }, spec: { from, to } })

/** The laws that do not hold, with their messages. */
async function broken(kind: Resource, options = {}): Promise<Record<string, string>> {
  const found: Record<string, string> = {}
  for (const [law, holds] of admissionLawsOf(kind, { runs: 100, ...options }))
    await holds().catch((error: unknown) => void (found[law] = (error as Error).message))
  return found
}

let calls = 0
beforeEach(() => {
  calls = 0
})
/** Deletions by others than its owner. */
const guarded = (judge: Judge): Resource => declared({ admit: { operations: ['UPDATE', 'DELETE'], judge } })

describe('the laws of admit', () => {
  it.each<[string, Judge, object]>([
    [
      'hold for one that looks at user and spec',
      ({ user, spec: { from } }) => (user.name === 'eve' && from > 3 ? [above] : []),
      {},
    ],
    [
      'find one that throws at a deletion',
      ({ operation, old }) => (operation === 'DELETE' && old!.to > 9 ? [above] : []),
      {
        'admit answers for each spec that the schema admits, created or changed':
          expect.stringContaining('admit does not answer'),
      },
    ],
    [
      'find one with a memory',
      () => [{ ...above, message: `${calls++}` }],
      { 'admit answers the same at any time, in any order': expect.stringContaining('two answers') },
    ],
    [
      'find a path that is not there',
      () => [{ path: '.spec.form', message: 'wrong' }],
      { 'admit names fields of the schema': expect.stringContaining('admit names spec.form') },
    ],
  ])('%s', async (_, judge, laws) => {
    expect(await broken(guarded(judge), { users: [{ name: 'eve', groups: [] }] })).toEqual(laws)
  })
})

const LAWS = {
  answers: 'validate answers for each spec that the schema admits, created or changed',
  pure: 'validate answers the same at any time, in any order',
  paths: 'validate names fields of the schema',
  admits: 'validate admits the examples, and not nothing',
}

describe('the laws of validate', () => {
  it.each<[string, Validate]>([
    ['compares two fields', ({ spec: { from, to } }) => (from > to ? [above] : [])],
    [
      'compares with the spec before',
      ({ spec: { to }, old }) => (old && to < old.to ? [{ path: '.spec.to', message: 'it shrinks' }] : []),
    ],
    [
      'names elements',
      ({ spec: { ports = [] } }) =>
        ports.map((_, index) => ({ path: `.spec.ports[${index}].port`, message: 'old', warning: true })),
    ],
    ['finds nothing', () => []],
  ])('hold for one that %s', async (_, validate) => {
    expect(await broken(range(validate))).toEqual({})
  })

  it.each<[string, Validate, Record<string, RegExp>]>([
    [
      'demands an optional field',
      ({ spec: { unit } }) => ((unit as string).length > 5 ? [above] : []),
      {
        [LAWS.answers]:
          /^ValidateError: resource Range: validate throws TypeError: .*\n.*admission-laws\.test\.ts:\d+:\d+\)?\nresource Range: validate does not answer\n  \{"spec":\{"from":\d,"to":\d\}\} \(seed 1\)$/,
      },
    ],
    [
      'demands the spec before',
      ({ spec: { to }, old }) => (to < (old as Spec).to ? [above] : []),
      { [LAWS.answers]: /throws TypeError/ },
    ],
    [
      'throws for a change alone',
      ({ spec: { to }, old }) => {
        if (old && old.to > to) throw new Error('a bug')
        return []
      },
      { [LAWS.answers]: /\{"spec":\{"from":\d,"to":\d\},"old":\{"from":\d,"to":\d\}\}/ },
    ],
    [
      'takes long',
      () => {
        if (calls++ > 0) return []
        const began = process.threadCpuUsage()
        while (process.threadCpuUsage(began).user < 250_000);
        return []
      },
      { [LAWS.answers]: /validate takes \d+ ms, in which/ },
    ],
    ['counts its calls', () => (calls++ % 2 ? [above] : []), { [LAWS.pure]: /two answers to the same question/ }],
    [
      'reads the clock',
      () => [{ ...above, message: `at ${Date.now()}`, warning: true }],
      { [LAWS.pure]: /first → second/ },
    ],
    [
      'names another field',
      () => [{ path: '.spec.till', message: 'late', warning: true }],
      { [LAWS.paths]: /validate names spec\.till, which the schema does not have: late/ },
    ],
    [
      'names a field of an element wrongly',
      ({ spec: { ports = [] } }) => ports.map(() => ({ path: '.spec.ports.port', message: 'a', warning: true })),
      { [LAWS.paths]: /spec\.ports\.port/ },
    ],
    ['refuses everything', () => [above], { [LAWS.admits]: /refuses each spec that is tried: give "examples"/ }],
  ])('find one that %s, with the resource and the spec', async (_, validate, expected) => {
    const found = await broken(range(validate), { runs: 6 })
    for (const [law, message] of Object.entries(expected)) expect(found[law]).toMatch(message)
  })

  it('find one that refuses an example', async () => {
    const found = await broken(
      range(({ spec: { from, to } }) => (from >= to ? [above] : [])),
      { examples: [example(1, 1)] },
    )
    expect(Object.keys(found)).toEqual([LAWS.admits])
    expect(found[LAWS.admits]).toMatch(
      /refuses an example: spec\.from: it is above spec\.to\n {2}\{"spec":\{"from":1,"to":1\}\}/,
    )
  })

  it('ask for an example where no valid spec is known, and are none of a resource without validate', async () => {
    const Odd = resource({
      group: 'example.com',
      version: 'v1',
      kind: 'Odd',
      plural: 'odds',
      status: z.object({}),
      validate: () => [],
      spec: z.object({ code: z.string().regex(/^Q{7}$/) }),
    })
    expect((await broken(Odd))[LAWS.answers]).toMatch('no valid spec of Odd is found: give "examples"')
    const { validate: _, ...None } = Odd
    expect(() => admissionLawsOf(None as Resource)).toThrow('resource Odd has neither "validate" nor "admit"')
  })
})
