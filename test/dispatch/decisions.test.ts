import { describe, expect, it } from 'vitest'
import { ConflictError, notePlace, RetryAfterError, TerminalError } from '#contracts'
import { ApiConnectionError, ApiError } from '#kube'
import { readReconciler, reconcilerSpec, selectionOf } from '#spec'
import { failedBy, refusalOf } from '../../dispatch/errors.ts'
import { ApiServerAwayError } from '../../dispatch/gate.ts'
import {
  consequenceOf,
  EffectError,
  ExternalError,
  FunctionError,
  gravest,
  NamespaceTerminatingError,
  RefusedError,
} from '../../reconcile/errors.ts'
import { widget } from './objects.ts'

const backoff = { initialSeconds: 1, maxSeconds: 60, jitter: 0 }
const apiError = (code: number, more: object = {}, retryAfterSeconds?: number) =>
  new ApiError('POST /x', { apiVersion: 'v1', kind: 'Status', code, message: 'no', ...more }, retryAfterSeconds)

const away = new ApiServerAwayError('refused', { server: 'h:1', wasSent: false })

describe('the consequence of a failure', () => {
  it('of an API server that is away is no failure of the key', () => {
    const { server } = failedBy(away)
    const { finish } = consequenceOf(away, { attempt: 12, backoff, random: () => 0.99, server })
    expect(finish).toMatchObject({ kind: 'error', isCounted: false, retryAt: { afterMs: 1990 } })
  })

  it.each([
    ['terminal: parked and shown', new TerminalError('bad', { reason: 'Bad' }), undefined, 'Bad'],
    ['retry-after: then, and shown', new RetryAfterError('later', { afterSeconds: 7, reason: 'Busy' }), 7, 'Busy'],
    ['refused: backoff, and shown', new RefusedError('taken', { reason: 'NameTaken' }), 8, 'NameTaken'],
    ['the API server says when', apiError(429, {}, 3), 3, undefined],
    ['the API server is in trouble: backoff', apiError(500), 8, undefined],
    ['the API server is away: soon, though backoff would be long', away, 1.5, undefined],
    ['the namespace goes: seldom', new NamespaceTerminatingError('going'), 60, undefined],
    ['anything else: backoff', new Error('oops'), 8, undefined],
    ['something thrown that is no error', 'oops', 8, undefined],
  ])('%s', (_, error, afterSeconds, reason) => {
    const { server } = failedBy(error)
    const { finish, report } = consequenceOf(error, { attempt: 3, backoff, random: () => 0.5, server })
    expect(report?.reason).toBe(reason)
    const retryAt = afterSeconds === undefined ? undefined : { afterMs: afterSeconds * 1000 }
    expect('retryAt' in finish ? finish.retryAt : undefined).toEqual(retryAt)
    expect(finish.kind).toBe(retryAt === undefined ? 'terminal' : 'error')
  })

  it.each([
    ['what the function throws', new TypeError('no such field'), 'TypeError'],
    ['what it throws that is no error', 'oops', 'Error'],
    ['a function over HTTP that answers with an error', new FunctionError('500', { isAway: false }), 'FunctionError'],
    ['a function over HTTP that is not there', new FunctionError('refused', { isAway: true }), undefined],
    ['an API server in trouble', apiError(500), undefined],
    ['an API server that is away', new ApiConnectionError('no answer', { server: 'h:1', wasSent: true }), undefined],
  ])('is shown from the fifth failure in a row on, if it is about the object: %s', (_, error, reason) => {
    const { server } = failedBy(error)
    const reasonAt = (attempt: number) =>
      consequenceOf(error, { attempt, backoff, random: () => 0.5, server }).report?.reason
    expect([3, 4, 5].map(reasonAt)).toEqual([undefined, reason, reason])
  })

  it.each<[string, unknown, (string | undefined)[]]>([
    ['what the function throws', new TypeError('no such field'), [undefined, 'TypeError', 'TypeError']],
    [
      'an effect that fails',
      new EffectError(new TypeError('x'), { kind: 'add' }),
      [undefined, 'EffectFailed', 'EffectFailed'],
    ],
    [
      'a wait that it asks for',
      new RetryAfterError('later', { afterSeconds: 7 }),
      [undefined, 'RetryAfter', 'RetryAfter'],
    ],
    ['a function over HTTP that is not there', new FunctionError('refused', { isAway: true }), [undefined, undefined]],
    [
      'a function over HTTP that answers with an error',
      new FunctionError('500', { isAway: false, isSigned: true }),
      [undefined, 'FunctionError', 'FunctionError'],
    ],
    ['a proxy before it', new FunctionError('429', { isAway: false }), [undefined, undefined, undefined]],
    ['an API server in trouble', apiError(500), [undefined, undefined]],
    ['a refused write, which says so itself', new RefusedError('no', { reason: 'Invalid' }), [undefined, undefined]],
  ])(
    'makes Ready of its object Unknown at the second, fourth and eighth failure of the function in a row: %s',
    (_, error, reasons) => {
      const { server } = failedBy(error)
      const unknownAt = (attempt: number) =>
        consequenceOf(error, { attempt, backoff, random: () => 0.5, server }).readyUnknown?.reason
      expect([0, 1, 7].slice(0, reasons.length).map(unknownAt)).toEqual(reasons)
      expect([2, 4, 5, 6].map(unknownAt)).toEqual([undefined, undefined, undefined, undefined])
    },
  )

  it('says where the function has thrown an error, unless its words are for the users of the object', () => {
    const placed = <E extends Error>(error: E): E => {
      notePlace(error, 'TypeError at src/a.ts:1:2')
      return error
    }
    const told = (error: Error) => {
      const { finish, report } = consequenceOf(error, { attempt: 9, backoff, random: () => 0.5 })
      return ['message' in finish ? finish.message : '', report?.message]
    }
    expect(told(placed(new TypeError('x')))).toEqual(Array(2).fill('TypeError at src/a.ts:1:2: x'))
    expect(told(new ExternalError(placed(new TypeError('x'))))[0]).toBe(
      'the external system cannot be read: TypeError at src/a.ts:1:2: x',
    )
    expect(told(placed(new TerminalError('spec.size is -1')))).toEqual(Array(2).fill('spec.size is -1'))
  })

  it('never fails for a reason that no condition may have', () => {
    const { report } = consequenceOf(new TerminalError('bad', { reason: 'bad schedule!' }), {
      attempt: 0,
      backoff,
      random: () => 0.5,
    })
    expect(report?.reason).toBe('TerminalError')
  })

  it('of several is that of the moved state, then of what may pass, then of all refusals together', () => {
    const refused = [new RefusedError('a', { reason: 'NameTaken' }), new RefusedError('b', { reason: 'Invalid' })]
    const of = (...errors: Error[]) => gravest(errors.map((failed) => ({ failed }))).failed
    expect(of(...refused, new Error('net'), new ConflictError('moved'))).toBeInstanceOf(ConflictError)
    expect(of(...refused, new Error('net'))).toMatchObject({ message: 'net' })
    expect(of(...refused)).toMatchObject({ name: 'RefusedError', reason: 'NameTaken', message: 'a; b' })
  })
})

describe('what the API server refuses', () => {
  it.each([
    ['Forbidden', apiError(403, { reason: 'Forbidden' }), 'Forbidden'],
    ['Invalid', apiError(422, { reason: 'Invalid' }), 'Invalid'],
    ['a namespace that is not there', apiError(404, { reason: 'NotFound' }), 'NotFound'],
    [
      'a field that the schema does not have',
      apiError(500, { message: 'failed to create typed patch object (x)' }),
      'Invalid',
    ],
    [
      'a value that the type of its field does not take',
      apiError(500, { message: 'failed to convert new object (a/b; apps/v1, Kind=Deployment) to proper version: x' }),
      'Invalid',
    ],
  ])('is for the object to show: %s', (_, error, reason) => {
    expect(refusalOf(error, 'cannot apply Pod a/b')).toMatchObject({ name: 'RefusedError', reason, cause: error })
  })

  it('is told in the words of the API server, without the request', () => {
    const refused = refusalOf(apiError(422, { message: 'pods "b" is invalid: x' }), 'cannot apply Pod a/b')
    expect(refused).toMatchObject({ message: 'cannot apply Pod a/b: pods "b" is invalid: x' })
  })

  it.each([
    [
      'a binding: the first right that is missing, how many others, and the verb bind',
      { kind: 'RoleBinding', roleRef: { kind: 'ClusterRole', name: 'admin' } },
      "and 79 more. Add { kind: 'ClusterRole', name: 'admin' } to \"binds\" of the function and install it again, so that it has the verb bind on this role, or give it these rights",
    ],
    [
      'a role: the verb escalate',
      { kind: 'Role' },
      'and 79 more. Give it these rights, or the verb escalate on roles admins',
    ],
  ])('is one line where it grants more than the account has; %s', (_, object, wayOut) => {
    const rules = Array.from(
      { length: 80 },
      (_, index) => `{APIGroups:["apps"], Resources:["r${index}"], Verbs:["get"]}`,
    )
    const message = `rolebindings.rbac.authorization.k8s.io "admins" is forbidden: user "robot" (groups=["a" "b"]) is attempting to grant RBAC permissions not currently held:\n${rules.join('\n')}; resolution errors: [x]`
    const refused = refusalOf(apiError(403, { reason: 'Forbidden', message }), 'cannot apply it', {
      ...widget(),
      ...object,
      metadata: { name: 'admins' },
    })
    expect(refused).toMatchObject({
      reason: 'Forbidden',
      message: `cannot apply it: robot would grant rights that it does not have: {APIGroups:["apps"], Resources:["r0"], Verbs:["get"]} ${wayOut}`,
    })
  })

  it('passes by itself in a namespace that is being deleted, and in overload', () => {
    const terminating = apiError(403, { details: { causes: [{ reason: 'NamespaceTerminating' }] } })
    expect(refusalOf(terminating, 'cannot')).toBeInstanceOf(NamespaceTerminatingError)
    const overload = apiError(503)
    expect(refusalOf(overload, 'cannot')).toBe(overload)
  })
})

describe('a Reconciler', () => {
  const primary = { group: 'g', version: 'v1', resource: 'widgets', kind: 'Widget' }
  const read = (spec: object) => readReconciler({ ...widget(), spec: { for: primary, invoke: { pull: {} }, ...spec } })

  it('that can be served is its specification, with defaults', () => {
    expect(read({})).toMatchObject({ owns: [], concurrency: 256, timeoutSeconds: 60 })
  })

  it.each(['fn', 'ftp://fn', 'http://', 'http://fn:x'])('is refused where its function is at %j', (url) => {
    const message = `spec.invoke.http.url: ${url} is not an http:// or https:// address`
    expect(read({ invoke: { http: { url } } })).toEqual({ reason: 'InvalidSpec', message })
  })

  it('is for the objects of its namespaces that match its selector', () => {
    const spec = { for: { ...primary, selector: 'app=a', namespaces: ['default'] }, invoke: { pull: {} } }
    const selects = selectionOf(reconcilerSpec.parse(spec).for)
    expect(selects(widget({ metadata: { labels: { app: 'a' } } }))).toBe(true)
    expect(selects(widget())).toBe(false)
    expect(selects(widget({ metadata: { labels: { app: 'a' }, namespace: 'other' } }))).toBe(false)
  })
})
