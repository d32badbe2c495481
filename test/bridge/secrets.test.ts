import { afterAll, beforeAll, expect, it } from 'vitest'
import { type KubeClient, resourcePath } from '#kube'
import { secrets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import { createReconciler, removeReconcilers, startBridge, until, untilEqual } from './world.ts'

let servers: Servers
let kube: KubeClient

beforeAll(async () => {
  servers = await startServers()
  ;({ kube } = servers)
})
afterAll(() => servers?.[Symbol.asyncDispose]())

it.each([
  { asked: 'any of them', selection: {}, isMetadata: true },
  {
    asked: 'those of a type, which metadata do not tell',
    selection: { fieldSelector: 'type=Opaque' },
    isMetadata: false,
  },
])(
  'of Secrets nothing but metadata is read from the API server, unless it is needed (asked for: $asked)',
  async (row) => {
    const told: object[] = []
    const watched: KubeClient = {
      ...kube,
      async *watch(path, options) {
        for await (const event of kube.watch(path, options)) {
          if (path.startsWith(resourcePath(secrets)) && event.type !== 'BOOKMARK') told.push(event.object)
          yield event as never
        }
      },
    }
    const path = resourcePath(secrets, 'default')
    const name = `s-${row.isMetadata}`
    await kube.create(path, {
      metadata: { name, labels: { a: 'b' } },
      type: 'Opaque',
      stringData: { password: 'hidden' },
    })
    await createReconciler(kube, 'secrets', { for: { ...secrets, ...row.selection } })
    await using bridge = await startBridge(watched, servers.nats.url, { prefix: name })
    await untilEqual(kube, bridge.events, secrets)
    bridge.enqueued.length = 0
    await kube.patch(`${path}/${name}`, { stringData: { password: 'changed' } }, 'merge')
    await until(async () => bridge.keysOf('secrets').includes(`default.${name}`), {
      what: 'a change of the contents makes it run',
    })
    expect(told.some((object) => 'data' in object)).toBe(!row.isMetadata)
    const { primary } = await bridge.events.observe({ primary: { ref: secrets, namespace: 'default', name } })
    const { apiVersion, kind, metadata, ...rest } = primary!.object
    expect([apiVersion, kind, metadata.labels, rest]).toEqual(['v1', 'Secret', { a: 'b' }, {}])
    await removeReconcilers(kube)
  },
)
