import { once } from 'node:events'
import { createServer } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { freePorts } from '../../packages/lab/ports.ts'
import { startFixture, until, WIDGETS } from './fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>

beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

const NAME = 'unreachable'
const path = resourcePath(RECONCILERS, undefined, NAME)

async function readyOf(): Promise<{ status: string; reason: string; message: string } | undefined> {
  const { status } = await fixture.kube.get(path)
  const { conditions = [] } = (status ?? {}) as { conditions?: { type: string; status: string; reason: string }[] }
  return conditions.find(({ type }) => type === 'Ready') as never
}

/** Stores the Reconciler in EVENTS, as the bridge does. */
const tell = async () => fixture.events.put(RECONCILERS, 'modified', await fixture.kube.get(path))

describe('a Reconciler whose function is at an address', () => {
  it('is not Ready where nothing answers five calls in a row, and is again with the next answer, not before', async () => {
    const [port] = (await freePorts(1)) as [number]
    const created = await fixture.kube.create<KubeObject>(resourcePath(RECONCILERS), {
      apiVersion: 'fairlead.dev/v1alpha1',
      kind: 'Reconciler',
      metadata: { name: NAME },
      spec: {
        for: { ...WIDGETS, namespaces: [NAME] },
        owns: [],
        invoke: { http: { url: `http://127.0.0.1:${port}` } },
      },
    })
    const scene = await fixture.scene(NAME, { object: created })
    await until(async () => (await readyOf())?.status === 'True')
    await tell()
    for (const name of ['a', 'b', 'c', 'd', 'e']) await scene.widget(name, () => ({}))
    await until(async () => (await readyOf())?.status === 'False')
    expect(await readyOf()).toMatchObject({
      reason: 'FunctionUnreachable',
      message: expect.stringContaining(`the function at http://127.0.0.1:${port} cannot be reached`),
    })
    await tell()

    const another = await fixture.scene('unreachable-too', { object: await fixture.kube.get(path), waitFor: false })
    await until(() => another.dispatcher.serving().includes(NAME))
    await another.stop()
    expect(await readyOf()).toMatchObject({ status: 'False' })

    await using server = createServer((_, response) =>
      response.writeHead(204, { 'fairlead-function': NAME }).end(),
    ).listen(port, '127.0.0.1')
    await once(server, 'listening')
    await until(async () => (await readyOf())?.status === 'True')
    expect(await readyOf()).toMatchObject({ reason: 'Serving' })
    await scene.stop()
  })
})
