import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { type Performed, type ReconcileOutcome, reconciler, resource, TerminalError } from '#sdk'
import { type ExternalModel, lawsOf, outcomeOf, type Scenario, simulate } from '#testing'

const Account = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Account',
  plural: 'accounts',
  spec: z.object({ size: z.int32() }),
  status: z.object({ size: z.int32().optional(), failed: z.boolean().optional() }),
})

type Users = { owner: string; names: string[] }
type Change = { kind: 'addUser' | 'dropUser'; name: string }

const model: ExternalModel<typeof Account, Users> = {
  state: { owner: '', names: [] },
  read: ({ names }) => names.toSorted(),
  perform(state, { kind, name }) {
    const others = state.names.filter((one) => one !== name)
    if (kind === 'addUser' && others.length < state.names.length) throw new Error(`there is a user ${String(name)}`)
    state.names = kind === 'addUser' ? [...others, String(name)] : others
  },
}

interface Known {
  object: ReturnType<typeof Account.parse>
  external: string[]
  performed: Performed | undefined
}
type Decision = ReconcileOutcome<{ size?: number; failed?: boolean }, Change> | undefined

const decide = ({ object, external }: Known): Decision => {
  const wanted = Array.from({ length: object.spec.size }, (_, index) => `user-${index}`)
  const missing = wanted.find((name) => !external.includes(name))
  if (missing !== undefined) return { effect: { kind: 'addUser', name: missing } }
  const spare = external.find((name) => !wanted.includes(name))
  if (spare !== undefined) return { effect: { kind: 'dropUser', name: spare } }
  return { status: { size: external.length } }
}
const cleanUp = ({ external: [name] }: Known): Decision =>
  name === undefined ? undefined : { effect: { kind: 'dropUser', name } }

const accountThat = (reconcile: (run: Known) => Decision, finalize: (run: Known) => Decision = cleanUp) =>
  reconciler({
    name: 'account',
    for: Account,
    external: { read: (): string[] => [], perform: ({ kind }: Change) => kind },
    reconcile,
    finalize,
  })
const account = accountThat(decide)
const object = Account.of({ metadata: { name: 'a', namespace: 'default' }, spec: { size: 2 } })
const scenario: Scenario<typeof Account, Users> = {
  objects: [object],
  external: model,
  steps: [
    ['it grows', (world) => world.edit({ spec: { size: 3 } })],
    ['it shrinks', (world) => world.edit({ spec: { size: 1 } })],
    ['somebody else drops its user', (world) => void world.external.names.splice(0)],
  ],
}

describe('a function that decides on what it reads', () => {
  it.each(lawsOf(account, scenario))('%s', (_, holds) => holds())
})

describe('what a law finds', () => {
  const additive: ExternalModel<typeof Account, Users> = {
    ...model,
    perform: (state, { kind, name }) =>
      kind === 'addUser'
        ? void state.names.push(String(name))
        : model.perform?.(state, { kind, name }, undefined as never),
  }
  const asStatusSays = (run: Known): Decision =>
    run.object.status.size === run.object.spec.size ? undefined : decide(run)
  it.each<[what: string, broken: typeof account, law: string, told: string, of?: typeof scenario]>([
    [
      'a status that is written only by the run that has performed the effect',
      accountThat((run) => (run.external.length > 1 && run.performed === undefined ? undefined : decide(run))),
      'its process dies before or after any effect',
      'otherwise: its process dies after effect addUser, at the start',
    ],
    [
      'a change that is another one when it is made twice',
      accountThat((run) => {
        const { effect, ...others } = decide(run) ?? {}
        return effect?.kind === 'dropUser' ? others : { ...others, ...(effect && { effect }) }
      }),
      'performed twice',
      'otherwise: two times effect addUser, at the start',
      { ...scenario, external: additive },
    ],
    [
      'a failure that stands for ever',
      accountThat((run) =>
        run.object.status.failed || run.performed?.error !== undefined ? { status: { failed: true } } : decide(run),
      ),
      'fails, whether it was performed or not',
      'otherwise: a failed effect addUser, at the start',
    ],
    [
      'an answer that is taken for the state',
      accountThat((run) =>
        run.performed !== undefined && run.performed.error === undefined
          ? { status: { size: run.object.spec.size } }
          : asStatusSays(run),
      ),
      'reported as performed before it is',
      'otherwise: an effect that is reported as performed, and is not addUser, at the start',
    ],
    [
      'a system that keeps what came late',
      accountThat((run) => {
        const { length } = run.external
        if (length >= run.object.spec.size) return { status: { size: length } }
        return { effect: { kind: 'addUser', name: `user-${length}` } }
      }),
      'performs an effect late',
      'otherwise: a stalled process that performs effect addUser, at the start',
      { ...scenario, external: additive, steps: [] },
    ],
    [
      'a finalizer that knows only what the status says',
      accountThat(decide, (run) => (run.object.status.size === undefined ? undefined : cleanUp(run))),
      'leaves the external system as its finalizer does',
      'if the object is deleted before effect addUser, at the start',
    ],
    [
      'an effect without end',
      accountThat(({ object: { status }, external }) => ({
        effect: { kind: 'addUser', name: `${status.size}-${external.length}` },
      })),
      'decides the same',
      'account never becomes idle: it asks for effect addUser again and again',
    ],
  ])('%s', async (_, broken, law, told, of = scenario) => {
    const [, holds] = lawsOf(broken, of).find(([name]) => name.includes(law))!
    await expect(holds()).rejects.toThrow(told)
  })
})

describe('a simulation of a function with an external system', () => {
  it('performs one effect after the other, and shows what was performed', async () => {
    const world = simulate(account, { objects: [object], external: model })
    await world.run()
    expectTypeOf(world.external).toEqualTypeOf<Users>()
    expect(world.external.names).toEqual(['user-0', 'user-1'])
    expect(world.effects.map(({ name }) => name)).toEqual(['user-0', 'user-1'])
    expect(world.inputs.map(({ external, performed }) => [external, performed?.effect['name']])).toEqual([
      [[], undefined],
      [['user-0'], 'user-0'],
      [['user-0', 'user-1'], 'user-1'],
      [['user-0', 'user-1'], 'user-1'],
    ])
    expect(model.state.names).toEqual([])
  })

  it('performs no effect in a dry run', async () => {
    const world = simulate(account, { objects: [object], external: model })
    await world.dryRun()
    expect([world.external.names, world.effects]).toEqual([[], []])
  })

  it('keeps the failure of an effect, and tries again in backoff', async () => {
    const world = simulate(account, { objects: [object], external: model })
    world.aroundEffects(() => Promise.reject(new Error('no')))
    await world.runUntilIdle()
    expect(world.failure?.message).toBe('effect addUser: no')
    world.aroundEffects(() => Promise.reject(new TerminalError('never')))
    await world.runUntilIdle()
    expect([world.failure?.message, world.timer]).toEqual(['effect addUser: never', undefined])
    const { length } = world.writes
    await world.run()
    expect(world.writes.slice(length)).toEqual([])
  })

  it('rejects with what a read throws: what does not answer is a value', async () => {
    const world = simulate(account, {
      objects: [object],
      external: {
        ...model,
        read: () => {
          throw new Error('down')
        },
      },
    })
    await expect(world.runUntilIdle()).rejects.toThrow(
      /^the external system cannot be read: Error at test\/testing\/external\.test\.ts:\d+:\d+: down$/,
    )
  })

  it('needs a model, and takes none for a function without an external system', () => {
    expect(() => simulate(account, { objects: [object] })).toThrow('give a model of it in "external"')
    const none = reconciler({ name: 'none', for: Account, reconcile: () => undefined })
    expect(() => simulate(none, { objects: [object], external: model })).toThrow('leave it out')
  })
})

it('decides in a table on what is given as read', async () => {
  expect(await outcomeOf(account, { object, external: ['user-0'] })).toEqual({
    effect: { kind: 'addUser', name: 'user-1' },
  })
  expect(await outcomeOf(account, { object, external: ['user-0', 'user-1'] })).toEqual({ status: { size: 2 } })
})
