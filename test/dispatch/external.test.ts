import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Effect, type KubeObject, type PerformInput, type ReadInput, type RunInput } from '#contracts'
import type { RunStep } from '#dispatch'
import { resourcePath } from '#kube'
import { ConfigMap, manifest, reconciler, resource, toInvoke } from '#sdk'
import { serve } from '#sdk/serve'
import { type HttpReceiver, startHttpReceiver } from '../support/http-receiver.ts'
import { CONFIG_MAPS, silent, until, useFixture, WIDGETS } from './fixture.ts'

const SECRETS = { group: '', version: 'v1', resource: 'secrets', kind: 'Secret' }

const fixture = useFixture()
let api: HttpReceiver
/** What the external system has, by name. */
const records = new Map<string, string>()
const requests: string[] = []

beforeAll(async () => {
  api = await startHttpReceiver(({ method, url, body }, response) => {
    const name = url.slice(1)
    requests.push(`${method} ${name}`)
    if (method === 'PUT') records.set(name, body.toString())
    if (method === 'DELETE') records.delete(name)
    response.end(JSON.stringify(records.get(name) ?? null))
  })
})
afterAll(async () => {
  await api?.[Symbol.asyncDispose]()
})

const Widget = resource({
  group: WIDGETS.group,
  version: WIDGETS.version,
  kind: WIDGETS.kind,
  plural: WIDGETS.resource,
  spec: z.object({ address: z.string().optional() }),
  status: z.object({ address: z.string().optional() }),
})

/** A record of an HTTP API with the name of the reconciler, and a ConfigMap that must be there before. */
const recording = (name: string) =>
  reconciler({
    name,
    for: Widget,
    owns: [ConfigMap],
    external: {
      read: async ({ signal }): Promise<string | null> => {
        const response = await fetch(`${api.url}/${name}`, { signal })
        return (await response.json()) as string | null
      },
      async perform({ kind, address = '' }: { kind: 'set' | 'drop'; address?: string }, { signal }) {
        requests.push(`map ${JSON.stringify((await mapOf(name))?.['data'])}`)
        const method = kind === 'set' ? 'PUT' : 'DELETE'
        await fetch(`${api.url}/${name}`, { method, signal, ...(kind === 'set' && { body: address }) })
        return kind
      },
      timeoutSeconds: 60,
    },
    reconcile({ object, external, performed }) {
      const { address = 'none' } = object.spec
      const apply = [ConfigMap.of({ metadata: { name }, data: { address } })]
      if (external !== address) return { apply, effect: { kind: 'set', address } }
      const events = performed && [{ type: 'Normal' as const, reason: 'Set', message: `${performed.result}` }]
      return { apply, status: { address }, ...(events && { events }) }
    },
    finalize: ({ external }) => (external === null ? undefined : { effect: { kind: 'drop' } }),
  })

const mapOf = (name: string): Promise<KubeObject | undefined> =>
  fixture.kube.get<KubeObject>(resourcePath(CONFIG_MAPS, name, name)).catch(() => undefined)

const outsideOf = (steps: readonly RunStep[]): string[] =>
  steps.flatMap((step) => {
    if (step.step === 'read') return [`read ${step.result}`]
    if (step.step === 'performed') return [`${step.kind} ${step.result}`]
    return step.step === 'written' ? [`${step.verb} ${step.kind}`] : []
  })

describe('a function with an external system', () => {
  it.each(['in the process', 'over HTTP'])(
    '%s performs an effect once, after the writes of its outcome',
    async (where) => {
      const name = where === 'over HTTP' ? 'outside-http' : 'outside'
      const one = recording(name)
      const server = await serve(one, { port: 0, host: '127.0.0.1', log: silent })
      const { owns, finalize, external } = manifest(one).spec
      const invoke = where === 'over HTTP' ? { http: { url: `http://127.0.0.1:${server.port}` } } : { pull: {} }
      const dispatcher = { functions: new Map([[name, toInvoke(one)]]) }
      const scene = await fixture.scene(name, { spec: { owns, finalize, external, invoke }, dispatcher })
      requests.length = 0
      await scene.widget('w', () => ({}))
      expect((await scene.ended('w')).result).toBe('success')
      expect(records.get(name)).toBe('none')
      expect(requests).toEqual([`GET ${name}`, 'map {"address":"none"}', `PUT ${name}`, `GET ${name}`])
      expect(outsideOf(scene.stepsOf('w'))).toEqual([
        'finalizers Widget',
        'read success',
        'apply ConfigMap',
        'set success',
        'read success',
        'status Widget',
      ])
      await until(async () =>
        (await scene.reported('w')).some(({ reason, note }) => reason === 'Set' && note === 'set'),
      )

      requests.length = 0
      await scene.run('w')
      expect(requests).toEqual([`GET ${name}`])

      await fixture.kube.delete(resourcePath(WIDGETS, name, 'w'))
      await scene.see(WIDGETS, 'w')
      await scene.run('w')
      expect([await scene.get(WIDGETS, 'w'), records.has(name)]).toEqual([undefined, false])
      await scene.stop()
      await server.stop(0)
    },
  )

  it('is given the contents of related Secrets to read and to perform, and no log has them', async () => {
    const name = 'outside-secrets'
    const lines: string[] = []
    const note = (fields: object, message: string) =>
      void lines.push(JSON.stringify([fields, message, String((fields as { err?: unknown }).err)]))
    const log = { debug: note, info: note, warn: note, error: note }
    await fixture.listed(SECRETS)
    await using scene = await fixture.scene(name, { spec: { external: {}, related: [SECRETS] }, dispatcher: { log } })
    const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' }, stringData: { password: 'hunter22' } }
    await fixture.kube.create(resourcePath(SECRETS, name), secret)
    await scene.see(SECRETS, 's')
    const given = new Set<string>()
    const passwordIn = ({ related }: Pick<RunInput, 'related'>) => {
      const { password = '' } = (related['Secret.v1']?.[0]?.['data'] ?? {}) as { password?: string }
      return Buffer.from(password, 'base64').toString()
    }
    scene.behaveOutside((input: ReadInput | PerformInput) => {
      given.add(`${input.ask} ${passwordIn(input)}`)
      if (input.ask === 'perform') throw new Error(`hunter22 is refused`)
      return []
    })
    await scene.widget('w', (input) => {
      given.add(`decide ${passwordIn(input)}`)
      return { effect: { kind: 'login', password: passwordIn(input) } }
    })
    const { result, message } = await scene.ended('w')
    expect([result, message]).toEqual(['error', 'effect login: [confidential] is refused'])
    expect(given).toEqual(new Set(['read hunter22', 'decide hunter22', 'perform hunter22']))
    expect(lines.join()).toContain('[confidential] is refused')
    expect(lines.join()).not.toContain('hunter22')
  })

  it('has a time-out of its own for an effect, which is told to stop then', async () => {
    await using scene = await fixture.scene('outside-hangs', { spec: { external: { timeoutSeconds: 1 } } })
    let attempts = 0
    let isAborted = false
    scene.behaveOutside(({ ask }, { signal }) => {
      if (ask === 'read' || attempts++ > 0) return attempts
      return new Promise((_, reject) =>
        signal.addEventListener('abort', () => {
          isAborted = true
          reject(signal.reason as Error)
        }),
      )
    })
    await scene.widget('w', ({ external }) => ((external as number) < 2 ? { effect: { kind: 'set' } } : {}))
    expect((await scene.ended('w')).message).toBe('effect set: the function did not finish within 1 s')
    expect(isAborted).toBe(true)
  })

  it('performs nothing in a run that has lost its key, and is told to stop while it performs', async () => {
    const name = 'outside-fenced'
    await using scene = await fixture.scene(name, { spec: { external: {} }, queue: { leaseMs: 6000 } })
    const loseKey = () => fixture.js.admin.streams.purge(`${name}_WORK`, { filter: `${name}.key.>` })
    const performed: Effect[] = []
    let losses = 0
    let stopped = 0
    const lost = (signal: AbortSignal) =>
      new Promise((resolve) => signal.addEventListener('abort', () => resolve(++stopped)))
    scene.behaveOutside(async (input, { signal }) => {
      if (input.ask === 'read') {
        if (losses++ === 0) await Promise.all([loseKey(), lost(signal)])
        return performed.length
      }
      if (losses++ === 2) {
        await Promise.all([loseKey(), lost(signal)])
        throw new Error('stopped')
      }
      performed.push(input.effect)
      return null
    })
    await scene.widget('w', ({ external }) => (external === 0 ? { effect: { kind: 'set' } } : {}))
    await until(() => scene.stepsOf('w').some((step) => step.step === 'finished' && step.result === 'fenced'))
    for (let runs = 0; performed.length === 0 && runs < 5; runs++) await scene.run('w')
    expect([performed.length, stopped]).toEqual([1, 2])
    const results = scene.stepsOf('w').flatMap((step) => (step.step === 'finished' ? [step.result] : []))
    expect(results.filter((result) => result === 'fenced')).toHaveLength(2)
  })

  it('reads no more often than its rate limit allows, and gives its slot back meanwhile', async () => {
    const rateLimit = { perSecond: 2, burst: 1 }
    await using scene = await fixture.scene('outside-limited', { spec: { external: { rateLimit } } })
    const readAt: number[] = []
    scene.behaveOutside(() => readAt.push(performance.now()))
    const names = ['a', 'b', 'c', 'd', 'e']
    await Promise.all(names.map((name) => scene.widget(name, () => ({}))))
    await until(() => readAt.length >= 5)
    const [first = 0] = readAt
    // Five reads at two a second.
    expect(readAt[4]! - first).toBeGreaterThan(1900)
    expect(scene.steps.some((step) => step.step === 'finished' && step.result === 'requeue_after')).toBe(true)
  })
})
