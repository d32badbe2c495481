import { describe, expect, it } from 'vitest'
import { type KubeObject, notePlace, type RunInput, TerminalError } from '#contracts'
import { type Answer, type Ask, ExternalError, RefusedError } from '#reconcile'
import { child, widget } from '../dispatch/objects.ts'
import {
  asksOf,
  drive,
  endOf,
  FINALIZER,
  fails,
  returns,
  type Script,
  type Step,
  sees,
  succeeds,
  widgets,
} from './driver.ts'

const core = (kind: string, resource: string) => ({ group: '', version: 'v1', resource, kind })
const OWNS = [
  core('Namespace', 'namespaces'),
  core('ServiceAccount', 'serviceaccounts'),
  core('ConfigMap', 'configmaps'),
  core('Secret', 'secrets'),
  { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'roles', kind: 'Role' },
  { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'rolebindings', kind: 'RoleBinding' },
  core('ResourceQuota', 'resourcequotas'),
  { ...core('Pod', 'pods'), strategy: 'CreateOnly' },
  { group: 'apps', version: 'v1', resource: 'deployments', kind: 'Deployment' },
  { group: 'autoscaling', version: 'v2', resource: 'horizontalpodautoscalers', kind: 'HorizontalPodAutoscaler' },
  {
    group: 'apiextensions.k8s.io',
    version: 'v1',
    resource: 'customresourcedefinitions',
    kind: 'CustomResourceDefinition',
  },
  { group: 'example.com', version: 'v1', resource: 'gadgets', kind: 'Gadget' },
]
const of = (more: object = {}) => widgets({ owns: OWNS, writes: ['Metadata', 'Deletion'], ...more })
/** A cluster-scoped owner, whose objects have a namespace of their own. */
const workspace = (more: Parameters<typeof widget>[0] = {}): KubeObject => {
  const { metadata, ...rest } = widget(more)
  const { namespace: _, ...others } = metadata
  return { ...rest, metadata: others }
}

function object(kind: string, name: string, content: object = {}, namespace: string | undefined = 'team'): KubeObject {
  const owned = OWNS.find((one) => one.kind === kind)!
  const isGlobal = ['Namespace', 'CustomResourceDefinition'].includes(kind)
  return {
    apiVersion: owned.group === '' ? owned.version : `${owned.group}/${owned.version}`,
    kind,
    metadata: { name, ...(isGlobal ? {} : { namespace }) },
    ...content,
  }
}
const podWith = (spec: object) => ({ spec: { template: { spec } } })

const NAMESPACE = object('Namespace', 'team')
const QUOTA = object('ResourceQuota', 'limits', { spec: { hard: { pods: '10' } } })
const BINDING = object('RoleBinding', 'admins', {
  roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'admin' },
})
const MAP = object('ConfigMap', 'settings', { data: { a: '1' } })

/** Refuses objects with the name `Kind name`, for this number of requests. */
const refuses =
  (names: readonly string[], reason = 'Forbidden') =>
  (ask: Ask): Answer => {
    const answer = succeeds(ask)
    if (ask.do !== 'write' || !('did' in answer) || answer.did !== 'write') return answer
    const results = ask.writes.map(({ object: { kind, metadata } }, index) =>
      names.includes(`${kind} ${metadata.name}`)
        ? { failed: new RefusedError(`cannot write ${kind} ${metadata.name}: no`, { reason }) }
        : answer.results[index]!,
    )
    return { did: 'write', results }
  }

const run = (outcome: unknown, refused: readonly string[], script: Script = {}, more: object = {}): Step[] =>
  drive({ observe: [sees(workspace())], call: [returns(outcome)], write: [refuses(refused)], ...script }, of(more))

const sentBy = (steps: readonly Step[]): string[] =>
  steps.flatMap(({ ask }) =>
    ask.do === 'write'
      ? ask.writes.map(({ verb, object: { kind, metadata } }) => `${verb} ${kind} ${metadata.name}`)
      : [],
  )
const inputsOf = (steps: readonly Step[]): RunInput[] =>
  steps.flatMap(({ ask }) => (ask.do === 'call' ? [ask.input] : []))

describe('a refused write', () => {
  it('does not stop the writes that do not need its object', () => {
    const steps = run({ apply: [NAMESPACE, BINDING, QUOTA, MAP] }, ['RoleBinding admins'])

    expect(sentBy(steps)).toEqual([
      'apply Namespace team',
      'apply ConfigMap settings',
      'apply RoleBinding admins',
      'apply ResourceQuota limits',
    ])
    expect(endOf(steps)).toMatchObject({ kind: 'error', message: 'cannot write RoleBinding admins: no' })
  })

  it.each<[what: string, refused: KubeObject, needs: KubeObject]>([
    ['what is in a namespace that is not there', NAMESPACE, QUOTA],
    ['a binding of a role', object('Role', 'r'), object('RoleBinding', 'b', { roleRef: { kind: 'Role', name: 'r' } })],
    [
      'a binding to an account',
      object('ServiceAccount', 'robot'),
      object('RoleBinding', 'b', { subjects: [{ kind: 'ServiceAccount', name: 'robot', namespace: 'team' }] }),
    ],
    [
      'a pod of an account',
      object('ServiceAccount', 'robot'),
      object('Pod', 'p', { spec: { serviceAccountName: 'robot' } }),
    ],
    [
      'a Deployment that mounts a ConfigMap',
      MAP,
      object('Deployment', 'web', podWith({ volumes: [{ configMap: { name: 'settings' } }] })),
    ],
    [
      'a Deployment whose environment is a Secret',
      object('Secret', 'key'),
      object('Deployment', 'web', podWith({ containers: [{ envFrom: [{ secretRef: { name: 'key' } }] }] })),
    ],
    [
      'an object of a kind',
      object('CustomResourceDefinition', 'gadgets.example.com', {
        spec: { group: 'example.com', names: { kind: 'Gadget' } },
      }),
      object('Gadget', 'g'),
    ],
  ])('holds back %s', (_, refused, needs) => {
    const steps = run({ apply: [needs, refused, object('ConfigMap', 'other', {}, 'elsewhere')] }, [
      `${refused.kind} ${refused.metadata.name}`,
    ])

    expect(sentBy(steps)).toContain('apply ConfigMap other')
    expect(sentBy(steps).join()).not.toContain(`${needs.kind} ${needs.metadata.name}`)
    const told = inputsOf(steps).at(-1)?.refused
    expect(Object.values(told ?? {}).flat()).toContainEqual({
      name: needs.metadata.name,
      namespace: 'team',
      reason: 'DependencyRefused',
      message: expect.stringContaining(`it needs ${refused.kind} `),
    })
  })

  it('holds back what needs an object that is held back', () => {
    const mounts = podWith({ volumes: [{ configMap: { name: 'settings' } }] })
    const scales = { spec: { scaleTargetRef: { kind: 'Deployment', name: 'web' } } }
    const apply = [object('HorizontalPodAutoscaler', 'h', scales), object('Deployment', 'web', mounts), MAP]
    expect(sentBy(run({ apply }, ['ConfigMap settings']))).toEqual(['apply ConfigMap settings'])
  })

  it('of a Namespace that is there leaves what is in it to be written', () => {
    const there = { ...NAMESPACE, metadata: { name: 'team', uid: 'uid-team', resourceVersion: '200' } }
    const owned = [{ resource: of().spec.owns[0]!, object: there }]
    const observe = { ...sees(workspace()) } as Extract<Answer, { did: 'observe' }>
    observe.seen = { ...observe.seen!, world: { ...observe.seen!.world, owned } }
    const steps = run({ apply: [NAMESPACE, QUOTA] }, ['Namespace team'], { observe: [observe] })
    expect(sentBy(steps)).toEqual(['apply Namespace team', 'apply ResourceQuota limits'])
  })

  it('keeps what would be deleted, since it may still do the work of what is missing', () => {
    const old = child('Pod', 'old')
    const observe = [sees(widget(), old)]
    const plain = widgets()
    const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'new' } }
    const steps = (refused: string[]) =>
      drive({ observe, call: [returns({ apply: [map] })], write: [refuses(refused)] }, plain)
    expect(sentBy(steps([]))).toEqual(['apply ConfigMap new', 'delete Pod old'])
    expect(sentBy(steps(['ConfigMap new']))).toEqual(['apply ConfigMap new'])
  })

  it('of a deletion does not stop the other deletions', () => {
    const observe = [sees(widget(), child('Pod', 'a'), child('Pod', 'b'))]
    const steps = drive({ observe, call: [returns({ apply: [] })], write: [refuses(['Pod a'])] }, widgets())
    expect(sentBy(steps)).toEqual(['delete Pod a', 'delete Pod b'])
    expect(endOf(steps)).toMatchObject({ kind: 'error' })
  })

  it('keeps the object itself from being deleted, and its finalizer', () => {
    const goes = run({ apply: [MAP], deleteObject: true }, ['ConfigMap settings'])
    expect(asksOf(goes)).not.toContain('delete')
    const going = widget({ metadata: { finalizers: [FINALIZER], deletionTimestamp: '2030-01-01T00:00:00Z' } })
    const script = { observe: [sees(going, child('Pod', 'a'))], write: [refuses(['Pod a'])] }
    const finalizing = drive({ ...script, call: [returns({ apply: [] })] }, widgets({ finalize: true }))
    expect(asksOf(finalizing)).not.toContain('writeFinalizers')
  })

  it('is reported with all others, and no longer than a condition may be', () => {
    const maps = Array.from({ length: 30 }, (_, index) => object('ConfigMap', `m${index}`))
    const names = maps.map(({ metadata }) => `ConfigMap ${metadata.name}`)
    const steps = run({ apply: [BINDING, ...maps] }, [...names, 'RoleBinding admins'])
    const { message } = endOf(steps) as { message: string }
    expect(message).toMatch(/^cannot write ConfigMap m0: no; cannot write ConfigMap m1: no; .*; and 23 more$/)
    expect(message.length).toBeLessThan(1000)
    expect(steps.flatMap(({ notes }) => notes.filter(({ note }) => note === 'failed'))).toHaveLength(1)
  })

  it('is reported also where another write shows the API server in trouble', () => {
    const write = (ask: Ask): Answer =>
      ask.do === 'write' && ask.writes[0]?.object.kind === 'ResourceQuota'
        ? fails(new Error('away'), { retryAfterSeconds: 7 })
        : refuses(['RoleBinding admins'])(ask)
    const steps = run({ apply: [BINDING, QUOTA] }, [], { write: [write] })
    expect(endOf(steps)).toMatchObject({ message: 'away', retryAt: { afterMs: 7000 } })
    expect(conditionsIn(steps)).toMatchObject({ Reconciled: { status: 'False', reason: 'Forbidden' } })
  })
})

describe('a function', () => {
  it('is told in the same run which of its objects were refused, and why', () => {
    const steps = run({ apply: [NAMESPACE, BINDING, QUOTA] }, ['RoleBinding admins', 'ResourceQuota limits'])
    const [first, second, ...others] = inputsOf(steps)

    expect(first).not.toHaveProperty('refused')
    expect(second?.refused).toEqual({
      'RoleBinding.v1.rbac.authorization.k8s.io': [
        { name: 'admins', namespace: 'team', reason: 'Forbidden', message: 'cannot write RoleBinding admins: no' },
      ],
      'ResourceQuota.v1': [
        { name: 'limits', namespace: 'team', reason: 'Forbidden', message: 'cannot write ResourceQuota limits: no' },
      ],
    })
    expect(others.every(({ refused }) => refused !== undefined)).toBe(true)
  })

  it('that says the same whether it is told or not is called once more, and nothing is sent twice', () => {
    const steps = run({ apply: [NAMESPACE, BINDING] }, ['RoleBinding admins'])
    expect(asksOf(steps)).toBe('observe call write write call writeStatus call finish')
    expect(sentBy(steps)).toHaveLength(2)
  })

  it('may say something else instead, and the run goes through', () => {
    const call = (ask: Ask): Answer => {
      const isRefused = ask.do === 'call' && ask.input.refused !== undefined
      return returns({ apply: isRefused ? [QUOTA] : [QUOTA, BINDING] })
    }
    const steps = run(undefined, ['RoleBinding admins'], { call: [call] })
    expect(endOf(steps)).toEqual({ kind: 'done' })
  })

  it('that asks for another object each time is stopped', () => {
    let calls = 0
    const call = () => returns({ apply: [object('RoleBinding', `b${++calls}`)] })
    const names = Array.from({ length: 20 }, (_, index) => `RoleBinding b${index}`)
    const steps = run(undefined, names, { call: [call] })
    expect(endOf(steps)).toMatchObject({ kind: 'error', message: expect.stringContaining('8 times in a row') })
    expect(conditionsIn(steps)).toMatchObject({ Reconciled: { status: 'False', reason: 'Forbidden' } })
  })

  it('that gives up when it is told ends the run by its own error', () => {
    const call = (ask: Ask): Answer =>
      ask.do === 'call' && ask.input.refused !== undefined
        ? fails(new TerminalError('no such role', { reason: 'NoRole' }))
        : returns({ apply: [BINDING], conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }] })
    const ready = workspace({ status: { conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }] } })
    const steps = run(undefined, ['RoleBinding admins'], { observe: [sees(ready)], call: [call] })
    expect(endOf(steps)).toEqual({ kind: 'terminal', message: 'no such role' })
    expect(conditionsIn(steps)).toMatchObject({
      Reconciled: { status: 'False', reason: 'NoRole' },
      Ready: { status: 'False', reason: 'NoRole' },
    })
  })

  it('is not told what a Secret contains', () => {
    const secret = object('Secret', 'key', { stringData: { password: 'hunter22' } })
    const write = (ask: Ask): Answer =>
      ask.do === 'write'
        ? {
            did: 'write',
            results: ask.writes.map(() => ({ failed: new RefusedError('"hunter22" is bad', { reason: 'Invalid' }) })),
          }
        : succeeds(ask)
    const steps = run({ apply: [secret] }, [], { write: [write] })
    expect(JSON.stringify(inputsOf(steps).map(({ refused }) => refused))).toContain('[confidential]')
    expect(JSON.stringify(steps.flatMap(({ ask }) => (ask.do === 'writeStatus' ? [ask.patch] : [])))).not.toContain(
      'hunter22',
    )
  })

  it('shows the place of an error and public names, of which a value of a Secret is a part', () => {
    const error = new TypeError('no user src in default, for Widget default/w')
    notePlace(error, 'TypeError at src/widget.ts:1:2')
    const seen = sees(widget(), child('Secret', 'key', { data: { a: btoa('default'), b: btoa('widget.ts') } }))
    for (const failed of [error, new ExternalError(error)]) {
      const end = endOf(drive({ observe: [seen], call: [fails(failed)] }, of()))
      const message = 'TypeError at src/widget.ts:1:2: no user src in [confidential], for Widget default/w'
      expect(end).toMatchObject({ kind: 'error', message: expect.stringContaining(message) })
    }
  })

  const made = object('Secret', 'key', { stringData: { user: 'hunter22' } })
  const cycle: Record<string, unknown> = { apply: [{ ...made, data: {} }] }
  cycle['status'] = cycle
  it.each<[string, object]>([
    ['has an undeclared Secret', { apply: [made] }],
    ['is not valid', { apply: [{ ...made, apiVersion: undefined }] }],
    ['is a cycle', cycle],
  ])('shows nothing of a Secret after an outcome that %s, though its Reconciler declares none', (_name, returned) => {
    const refused = fails(new Error('hunter22 is not stored'))
    const steps = drive({ call: [returns(returned)], writeStatus: [refused] }, widgets({ owns: [OWNS[0]] }))
    expect(endOf(steps)?.kind).toBe('error')
    expect(JSON.stringify(steps.map(({ ask }) => ask))).not.toContain('hunter22 is')
    const shown = steps.flatMap(({ notes }) => notes).flatMap((note) => ('shown' in note ? String(note.shown) : []))
    expect(shown.at(-1)).toBe('Error: [confidential] is not stored')
  })

  it('tells no Event of an outcome that was refused before it knows', () => {
    const event = (message: string) => ({ type: 'Normal', reason: 'Bound', message })
    const call = (ask: Ask): Answer => {
      const isTold = ask.do === 'call' && ask.input.refused !== undefined
      return returns({ apply: [BINDING], events: [event(isTold ? 'not bound' : 'bound')] })
    }
    const steps = run(undefined, ['RoleBinding admins'], { call: [call] })
    const notes = steps.flatMap(({ notes }) => notes.flatMap((note) => (note.note === 'event' ? [note.event] : [])))
    expect(notes.map(({ message }) => message)).toEqual(['not bound', 'cannot write RoleBinding admins: no'])
  })
})

/** By type, as the last write of the status left them. */
function conditionsIn(steps: readonly Step[]): Record<string, Record<string, unknown>> {
  const written = steps.flatMap(({ ask }) =>
    ask.do === 'writeStatus' ? [ask.patch.status as { conditions?: [] }] : [],
  )
  const { conditions = [] } = written.findLast(({ conditions }) => conditions !== undefined) ?? {}
  return Object.fromEntries(conditions.map((one: { type: string }) => [one.type, one]))
}

const ready = (status: string, reason = 'Checked') => ({ type: 'Ready', status, reason, message: '' })

describe('the status of a run with a refusal', () => {
  const statusesOf = (steps: readonly Step[]) =>
    steps.flatMap(({ ask }) => (ask.do === 'writeStatus' ? [ask.patch.status] : []))

  it('has what the function says, and the refusal, in one write', () => {
    const outcome = { apply: [BINDING], status: { phase: 'Up' }, conditions: [ready('False')] }
    const steps = run(outcome, ['RoleBinding admins'])
    expect(statusesOf(steps)).toEqual([
      {
        phase: 'Up',
        observedGeneration: 1,
        conditions: [
          expect.objectContaining({ type: 'Ready', status: 'False', reason: 'Checked' }),
          expect.objectContaining({ type: 'Reconciled', status: 'False', reason: 'Forbidden' }),
        ],
      },
    ])
  })

  it.each<[what: string, before: object[], said: object[] | undefined]>([
    ['that the function returns', [], [ready('True')]],
    ['that the function returned before', [ready('True')], undefined],
    ['that was made False by another refusal', [{ ...ready('False'), message: 'a write was refused: x' }], undefined],
  ])('never has a Ready that is True: one %s', (_, conditions, said) => {
    const observe = [sees(workspace({ metadata: { generation: 3 }, status: { conditions } }))]
    const steps = run({ apply: [BINDING], conditions: said }, ['RoleBinding admins'], { observe })
    expect(conditionsIn(steps)['Ready']).toMatchObject({
      status: 'False',
      reason: 'Forbidden',
      message: 'a write was refused: cannot write RoleBinding admins: no',
      observedGeneration: 3,
    })
  })

  it.each([
    ['False', 'NotYet'],
    ['Unknown', 'Asking'],
  ])('leaves a Ready of the function that is %s to it', (status, reason) => {
    const steps = run({ apply: [BINDING], conditions: [ready(status, reason)] }, ['RoleBinding admins'])
    expect(conditionsIn(steps)['Ready']).toMatchObject({ status, reason })
  })

  it('has no Ready where the function has none', () => {
    expect(conditionsIn(run({ apply: [BINDING] }, ['RoleBinding admins']))).not.toHaveProperty('Ready')
  })

  it('is the same when the refusal is repeated: nothing is written', () => {
    const outcome = { apply: [BINDING], status: { phase: 'Up' }, conditions: [ready('True')] }
    const first = run(outcome, ['RoleBinding admins'])
    const shown = first.findLast(({ ask }) => ask.do === 'writeStatus')!.answer as { result: { object: KubeObject } }
    const again = run(outcome, ['RoleBinding admins'], { observe: [sees(shown.result.object)] })
    expect(statusesOf(first)).toHaveLength(1)
    expect(asksOf(again)).toBe('observe call write call finish')
  })

  it('gives a Ready that the function does not repeat back to it when the run goes through', () => {
    const refused = { ...ready('False', 'Forbidden'), message: 'a write was refused: no' }
    const failed = { type: 'Reconciled', status: 'False', reason: 'Forbidden', message: 'no' }
    const observe = [sees(workspace({ status: { conditions: [refused, failed] } }))]
    expect(conditionsIn(run({ apply: [BINDING] }, [], { observe }))).toMatchObject({
      Ready: { status: 'True', reason: 'Reconciled' },
      Reconciled: { status: 'True' },
    })
  })

  it('is written also where labels and annotations are refused, of which the function is told', () => {
    const outcome = { metadata: { labels: { a: '1' } }, status: { phase: 'Up' } }
    const writeMetadata = [fails(new RefusedError('not yours', { reason: 'FieldConflict' }))]
    const steps = run(outcome, [], { writeMetadata })
    expect(asksOf(steps)).toBe('observe call writeMetadata call writeStatus call finish')
    expect(inputsOf(steps).at(-1)?.refused).toEqual({
      'Widget.v1.test.fairlead.dev': [{ name: 'w', reason: 'FieldConflict', message: 'not yours' }],
    })
    expect(conditionsIn(steps)).toMatchObject({ Reconciled: { status: 'False', reason: 'FieldConflict' } })
    expect(endOf(steps)).toMatchObject({ kind: 'error', message: 'not yours' })
  })

  it('of another controller stays as it is: the refusal is an Event', () => {
    const more = { for: { ...of().spec.for, status: 'Untouched' } }
    const steps = run({ apply: [BINDING] }, ['RoleBinding admins'], {}, more)
    expect(asksOf(steps)).toBe('observe call write call finish')
    const notes = steps.flatMap(({ notes }) => notes.filter(({ note }) => note === 'event'))
    expect(notes).toMatchObject([{ event: { type: 'Warning', reason: 'Forbidden' } }])
  })

  it('that is refused itself is reported with the rest', () => {
    const outcome = { apply: [BINDING], status: { phase: 'Up' } }
    const writeStatus = [fails(new RefusedError('too large', { reason: 'TooLarge' })), succeeds]
    const steps = run(outcome, ['RoleBinding admins'], { writeStatus })
    expect(conditionsIn(steps)).toMatchObject({
      Reconciled: { reason: 'TooLarge', message: 'too large; cannot write RoleBinding admins: no' },
    })
  })
})
