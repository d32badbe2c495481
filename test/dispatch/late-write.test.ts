import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { expect, inject, it } from 'vitest'
import { createBridge } from '#bridge'
import type { RunInput } from '#contracts'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { CONFIG_MAPS, configMap, silent, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()

/**
 * A proxy in front of the API server. After delay(), it keeps the first apply of the ConfigMap, as a queue of the API
 * server would, and sends it on land(), although its sender has given up by then.
 */
async function startDelayingProxy() {
  const { kubeconfig } = (await (await fetch(inject('sharedServers'))).json()) as { kubeconfig: string }
  const { server: target, ca, cert, key, token } = await loadKubeConfig({ paths: [kubeconfig] })
  const landing = Promise.withResolvers<void>()
  const late = Promise.withResolvers<number | undefined>()
  let state: 'idle' | 'next' | 'delayed' = 'idle'
  const sent: string[] = []

  const forward = async ({ method, url = '', headers }: IncomingMessage, body: Buffer) => {
    const authorization = await token?.()
    const { hostname, port } = new URL(target)
    const options = { hostname, port, path: url, method, ca, cert, key }
    const onward = request({ ...options, headers: { ...headers, ...(authorization && { authorization }) } })
    return new Promise<IncomingMessage>((resolve, reject) =>
      onward.on('response', resolve).on('error', reject).end(body),
    )
  }

  const pass = async (incoming: IncomingMessage, response: ServerResponse) => {
    const { method, url = '' } = incoming
    const body = await buffer(incoming)
    const isApply = method === 'PATCH' && url.includes('/configmaps/map')
    if (isApply && state === 'next') {
      state = 'delayed'
      await landing.promise
      const answer = await forward(incoming, body)
      return late.resolve(answer.resume().statusCode)
    }
    const answer = await forward(incoming, body)
    if (url.includes('/configmaps')) sent.push(`${method} ${answer.statusCode}`)
    response.writeHead(answer.statusCode ?? 0, answer.headers)
    answer.pipe(response)
  }
  const proxy = createServer((incoming, response) => void pass(incoming, response))
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as AddressInfo
  return {
    kube: createKubeClient({ server: `http://127.0.0.1:${port}`, userAgent: 'delayed' }),
    /** The requests about ConfigMaps that the proxy has passed on, with the answers. */
    sent,
    delay: () => {
      state = 'next'
    },
    isDelayed: () => state === 'delayed',
    land: () => {
      landing.resolve()
      return late.promise
    },
    async [Symbol.asyncDispose]() {
      proxy.closeAllConnections()
      await new Promise((resolve) => proxy.close(resolve))
    },
  }
}

/** A widget whose function returns the ConfigMap `map` with `value`. Its dispatcher sends everything through a proxy. */
async function startDelayed(name: string) {
  const object = await fixture.reconciler(name, { owns: [CONFIG_MAPS] })
  const proxy = await startDelayingProxy()
  // The bridge has to list for this Reconciler first: bridges of earlier tests have left cursors that do not cover it.
  const options = { object, dispatcher: { kube: proxy.kube }, queue: { leaseMs: 6000 }, waitFor: false } as const
  const scene = await fixture.scene(name, options)
  const bridge = createBridge({
    kube: fixture.kube,
    events: fixture.events,
    queue: scene.queue,
    log: silent,
    ownWrites: scene.dispatcher,
  })
  const stop = new AbortController()
  const running = bridge.run(stop.signal, 2000)
  await until(() => scene.dispatcher.serving().includes(name))
  const valueIs = (value: string) =>
    until(
      async () => ((await scene.get(CONFIG_MAPS, 'map'))?.['data'] as { value?: string } | undefined)?.value === value,
    )
  const wanted: { value: string; during: (input: RunInput) => unknown } = { value: 'first', during: () => undefined }
  scene.behave('w', async (input) => {
    const { value } = wanted
    await wanted.during(input)
    return { apply: [configMap('map', { value })] }
  })
  const widget = { apiVersion: 'test.fairlead.dev/v1', kind: 'Widget', metadata: { name: 'w', namespace: name } }
  await fixture.kube.create(resourcePath(WIDGETS, name), { ...widget, spec: {} })
  await valueIs('first')
  return {
    proxy,
    scene,
    wanted,
    valueIs,
    /** Runs the widget until its apply is in the proxy. */
    async runUntilDelayed() {
      proxy.delay()
      await scene.enqueue('w')
      await until(proxy.isDelayed)
    },
    loseLease: () => fixture.js.admin.streams.purge(`${name}_WORK`, { filter: `${name}.key.>` }),
    async [Symbol.asyncDispose]() {
      stop.abort()
      await running
      await scene.stop()
      await proxy[Symbol.asyncDispose]()
      await fixture.kube.delete(resourcePath(RECONCILERS, undefined, name))
    },
  }
}

it('an apply that arrives after a newer run has applied is refused, and the newer state stays', async () => {
  await using delayed = await startDelayed('late-write')
  const { wanted, proxy, valueIs, scene } = delayed
  wanted.value = 'old'
  await delayed.runUntilDelayed()
  wanted.value = 'new'
  await delayed.loseLease()
  await valueIs('new')
  const before = await scene.get(CONFIG_MAPS, 'map')
  expect(await proxy.land()).toBe(409)
  expect(await scene.get(CONFIG_MAPS, 'map')).toEqual(before)
})

it('an apply that arrives after a newer run that had nothing to apply is repaired by the run that its watch event causes', async () => {
  await using delayed = await startDelayed('late-write-repaired')
  const { wanted, proxy, valueIs, scene } = delayed
  wanted.value = 'old'
  await delayed.runUntilDelayed()
  wanted.value = 'first'
  const from = scene.steps.length
  await delayed.loseLease()
  await until(() => scene.steps.slice(from).some((step) => step.step === 'finished' && step.result === 'success'))
  expect(await proxy.land()).toBe(200)
  await valueIs('first')
})

it('an apply to an object that another client has just changed is sent again at once, and both changes stay', async () => {
  await using delayed = await startDelayed('changed-by-others')
  const { wanted, proxy, valueIs, scene } = delayed
  let calls = 0
  const path = resourcePath(CONFIG_MAPS, scene.name, 'map')
  wanted.value = 'second'
  wanted.during = async () => {
    calls++
    if (calls === 1) await fixture.kube.patch(path, { data: { other: 'kept' } }, 'merge')
  }
  const from = proxy.sent.length
  await scene.enqueue('w')
  await valueIs('second')
  expect(proxy.sent.slice(from)).toEqual(['PATCH 409', 'GET 200', 'PATCH 200'])
  expect((await scene.get(CONFIG_MAPS, 'map'))?.['data']).toEqual({ value: 'second', other: 'kept' })
})
