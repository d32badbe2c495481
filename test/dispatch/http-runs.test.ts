import { request as forward, type ServerResponse } from 'node:http'
import { inspect } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject, RunInput } from '#contracts'
import { fromHttp } from '#events'
import { resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { freePorts } from '../../packages/lab/ports.ts'
import { type HttpReceiver, startHttpReceiver } from '../support/http-receiver.ts'
import { PODS, pod, type Scene, until, useFixture, WIDGETS } from './fixture.ts'

type Answer = (response: ServerResponse, input: RunInput) => void

const fixture = useFixture()
let scene: Scene
let server: HttpReceiver
/** The answers of the function for one object, in order; the last one is repeated. */
const answers = new Map<string, Answer[]>()
const inputs = new Map<string, RunInput[]>()

beforeAll(async () => {
  server = await startHttpReceiver((request, response) => {
    const input = fromHttp(request).data as RunInput
    const { name } = (input.object as KubeObject).metadata
    inputs.set(name, [...(inputs.get(name) ?? []), input])
    const left = answers.get(name) ?? []
    const answer = left.length > 1 ? left.shift() : left[0]
    if (answer) answer(response, input)
    else response.writeHead(204, signed).end()
  })
  const invoke = { http: { url: server.url }, pull: {} }
  scene = await fixture.scene('http', {
    spec: { invoke, writes: ['Metadata', 'Deletion'], finalize: true },
  })
})
afterAll(async () => {
  await scene?.stop()
  await server?.[Symbol.asyncDispose]()
})

const says =
  (code: number, body?: object, headers: Record<string, string> = {}): Answer =>
  (response) =>
    response.writeHead(code, { 'content-type': 'application/json', ...headers }).end(body && JSON.stringify(body))

const signed = { 'fairlead-function': 'http' }

async function widget(name: string, ...list: Answer[]): Promise<void> {
  answers.set(name, list)
  await scene.widget(name, () => ({}))
}
const phaseOf = (object: KubeObject | undefined) => (object?.status as { phase?: string } | undefined)?.phase
const attempts = (name: string) => (inputs.get(name) ?? []).map(({ attempt }) => attempt)

describe('a run of a function over HTTP', () => {
  it('applies the outcome, and calls again with what it has made', async () => {
    await widget('applies', says(200, { apply: [pod('applies-pod')], status: { phase: 'RUNNING' } }))
    expect((await scene.ended('applies')).result).toBe('success')
    expect((await scene.get(PODS, 'applies-pod'))?.metadata.name).toBe('applies-pod')
    const owned = inputs.get('applies')?.map((input) => input.owned['Pod.v1']?.length)
    expect([owned?.[0], owned?.at(-1)]).toEqual([0, 1])
  })

  it('is told what was refused of its outcome, and has its status written', async () => {
    const broken = { ...pod('broken-pod'), spec: { containers: [] } }
    const outcome = (phase: string) => ({ apply: [broken], status: { phase } })
    await widget('broken', says(200, outcome('UNTOLD')), says(200, outcome('TOLD')))
    expect((await scene.ended('broken')).result).toBe('error')
    expect(phaseOf(await scene.get(WIDGETS, 'broken'))).toBe('TOLD')
    const [first, second] = inputs.get('broken') ?? []
    expect(first).not.toHaveProperty('refused')
    const message = expect.stringContaining('cannot create Pod http/broken-pod: ')
    const refusal = { name: 'broken-pod', namespace: 'http', reason: 'Invalid', message }
    expect(second?.refused).toEqual({ 'Pod.v1': [refusal] })
    answers.set('broken', [says(204, undefined, signed)])
    // A retry that is answered during the call of another object would count that call as a failure of its object.
    const succeeded = () =>
      scene.steps.some((step) => step.step === 'finished' && step.key.includes('broken') && step.result === 'success')
    await until(succeeded)
  })

  it('keeps the finalizer until the function itself has answered', async () => {
    const accepted = [202, 204, 200].map((code) => says(code))
    await widget('finalized', says(204, undefined, signed))
    await scene.ended('finalized')
    const from = inputs.get('finalized')?.length ?? 0
    answers.set('finalized', [...accepted, says(200, {}), says(204, undefined, signed)])
    await fixture.kube.delete(resourcePath(WIDGETS, 'http', 'finalized'))
    await scene.see(WIDGETS, 'finalized')
    await scene.enqueue('finalized')
    await until(async () => (await scene.get(WIDGETS, 'finalized')) === undefined)
    expect(
      inputs
        .get('finalized')
        ?.slice(from)
        .map(({ finalizing }) => finalizing),
    ).toEqual(Array(5).fill(true))
  })

  it.each([204, 200])(
    'takes an empty %d of a proxy for a function that is away: failures stay, and the function is called until it answers',
    async (code) => {
      const name = `proxied-${code}`
      let isInMaintenance = false
      let empty = 0
      await using proxy = await startHttpReceiver(({ headers, body }, response) => {
        if (isInMaintenance) {
          empty++
          return void response.writeHead(code).end()
        }
        const passed = forward(server.url, { method: 'POST', headers }, (answer) => {
          response.writeHead(answer.statusCode ?? 502, answer.headers)
          answer.pipe(response)
        })
        passed.end(body)
      })
      await using timed = await fixture.scene(name, {
        spec: { invoke: { http: { url: proxy.url } } },
      })
      const own = { 'fairlead-function': name }
      // The timer is later than the end of the test.
      const asksForTimer = says(200, { status: { phase: 'TIMED' }, requeueAfterSeconds: 600 }, own)
      const fails: Answer = (response) => {
        isInMaintenance = true
        response.writeHead(500, own).end()
      }
      answers.set(name, [asksForTimer])
      await timed.widget(name, () => ({}))
      expect((await timed.ended(name)).result).toBe('requeue_after')
      answers.set(name, [fails, says(200, { status: { phase: 'DONE' } }, own)])
      expect((await timed.run(name)).result).toBe('error')
      await until(() => empty >= 3)
      const results = timed.stepsOf(name).flatMap((step) => (step.step === 'finished' ? [step.result] : []))
      expect([results[0], ...new Set(results.slice(1))]).toEqual(['requeue_after', 'error'])
      isInMaintenance = false
      await until(async () => phaseOf(await timed.get(WIDGETS, name)) === 'DONE')
      const since = attempts(name).slice(attempts(name).indexOf(1))
      expect([since[0], ...new Set(since)]).toEqual([1, 1])
    },
  )
})

it.each([
  ['unreachable', 'FunctionUnreachable', (port: number) => `http://user:s3cret@127.0.0.1:${port}/?token=s3cret`],
  ['not http', 'InvalidSpec', () => 'ftp://user:s3cret@127.0.0.1/?token=s3cret'],
])('credentials in a URL that is %s are in no log, condition, Event or error', async (_, reason, urlAt) => {
  const [nobody = 0] = await freePorts(1)
  const name = reason.toLowerCase()
  const created = await fixture.reconciler(name, { invoke: { http: { url: urlAt(nobody) } } })
  const told: unknown[] = []
  const tell = (fields: object, message: string) =>
    told.push(message, JSON.stringify(fields), 'err' in fields ? inspect(fields.err, { depth: 10 }) : '')
  const log = { debug: tell, info: tell, warn: tell, error: tell }
  await using masked = await fixture.scene(name, { waitFor: false, object: created, dispatcher: { log } })
  for (const one of ['a', 'b', 'c', 'd', 'e']) await masked.widget(one, () => ({}))
  const conditions = async () => {
    const object = await fixture.kube.get<KubeObject>(resourcePath(RECONCILERS, undefined, name))
    await fixture.events.put(RECONCILERS, 'modified', object)
    return (object.status as { conditions?: { reason: string }[] } | undefined)?.conditions ?? []
  }
  await until(async () => (await conditions()).some((condition) => condition.reason === reason))
  told.push(JSON.stringify(await conditions()), JSON.stringify(masked.steps))
  told.push(JSON.stringify([await masked.get(WIDGETS, 'a'), await masked.reported('a')]))
  expect(told.join('\n')).toContain(reason)
  expect(told.join('\n')).not.toContain('s3cret')
})

it('a Reconciler is not Ready where nothing answers five calls in a row, and is again with the next answer, not before', async () => {
  const name = 'unreachable'
  const path = resourcePath(RECONCILERS, undefined, name)
  /** Stores the Reconciler in EVENTS, as the bridge does. */
  const tell = async () => fixture.events.put(RECONCILERS, 'modified', await fixture.kube.get(path))
  const readyOf = async () => {
    const { status } = await fixture.kube.get(path)
    return ((status ?? {}) as { conditions?: { type: string }[] }).conditions?.find(({ type }) => type === 'Ready')
  }
  const isReady = (status: string) => until(async () => expect(await readyOf()).toMatchObject({ status }))
  const [port] = (await freePorts(1)) as [number]
  const created = await fixture.reconciler(name, { invoke: { http: { url: `http://127.0.0.1:${port}` } } })
  await using scene = await fixture.scene(name, { object: created })
  await isReady('True')
  await tell()
  for (const one of ['a', 'b', 'c', 'd', 'e']) await scene.widget(one, () => ({}))
  await isReady('False')
  expect(await readyOf()).toMatchObject({
    reason: 'FunctionUnreachable',
    message: expect.stringContaining(`the function at http://127.0.0.1:${port} cannot be reached`),
  })
  await tell()

  const another = await fixture.scene('unreachable-too', { object: await fixture.kube.get(path), waitFor: false })
  await until(() => another.dispatcher.serving().includes(name))
  await another.stop()
  expect(await readyOf()).toMatchObject({ status: 'False' })

  await using _ = await startHttpReceiver(
    (_request, response) => response.writeHead(204, { 'fairlead-function': name }).end(),
    port,
  )
  await isReady('True')
  expect(await readyOf()).toMatchObject({ reason: 'Serving' })
})
