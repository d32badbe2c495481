import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { freePorts } from '../../packages/lab/ports.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { startCollector } from '../support/collector.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'
import { LAST_GRAMS, Parcel } from './metrics-function.ts'

const MODULE = fileURLToPath(new URL('metrics-function.ts', import.meta.url))
const isServed = ({ msg, reconciler }: { msg: string; reconciler?: string }) =>
  msg === 'reconciler served' && reconciler === 'parcel'

async function clientOf(kubeconfig: string): Promise<KubeClient & AsyncDisposable> {
  return createKubeClient({ ...(await loadKubeConfig({ paths: [kubeconfig] })), userAgent: 'test' })
}

const create = (kube: KubeClient, name: string, size: string, grams: number) =>
  kube.create(resourcePath(Parcel, 'default'), Parcel.of({ metadata: { name }, spec: { size, grams } }))

/** The series of functions at /metrics. */
async function seriesAt(listen: string): Promise<Record<string, number>> {
  const text = await (await fetch(`http://${listen}/metrics`)).text()
  const found = text.matchAll(/^fairlead_function_(\w+\{[^}]*\}) (\S+)$/gm)
  return Object.fromEntries([...found].map(([, series = '', value]) => [series, Number(value)]))
}

const counted = (size: string) => `parcels_total{controller="parcel",size="${size}"}`
const GRAMS = 'last_grams{controller="parcel"}'

it('what a function measures is at /metrics of one process, of a dispatcher, and over HTTP, and goes with its object and its declaration', async () => {
  await using cluster = await borrowCluster({ nats: true })
  const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
  await using kube = await clientOf(cluster.kubeconfig)
  const [first = 0, second = 0] = await freePorts(2)
  {
    const listen = `127.0.0.1:${first}`
    await using up = startFairlead(['up', '--install', '-f', MODULE, '--listen', listen], env)
    await up.logged(isServed)
    await create(kube, 'a', 'small', 10)
    await create(kube, 'b', 'small', 10)
    await create(kube, 'c', 'huge', 10)
    // A run calls the function again after its write, and an object that runs again is not counted again.
    await until(async () =>
      expect(await seriesAt(listen)).toEqual({ [counted('small')]: 2, [counted('other')]: 1, [GRAMS]: 10 }),
    )
    await command(['queue', 'run', 'parcel', 'default/a'], env)
    await create(kube, 'd', 'large', 20)
    await until(async () =>
      expect(await seriesAt(listen)).toEqual({
        [counted('small')]: 2,
        [counted('large')]: 1,
        [counted('other')]: 1,
        [GRAMS]: 20,
      }),
    )
    await kube.delete(resourcePath(Parcel, 'default', 'd'))
    await until(async () => expect(Object.keys(await seriesAt(listen))).not.toContain(GRAMS))
  }
  const listen = `127.0.0.1:${second}`
  await using fn = startFairlead(['serve', '-f', MODULE, '--port', '0'], {})
  const { port } = await fn.logged(({ msg }) => msg === 'serving')
  const invoke = { http: { url: `http://127.0.0.1:${port}` }, pull: null }
  await kube.patch(resourcePath(RECONCILERS, undefined, 'parcel'), { spec: { invoke } }, 'merge')
  await using collector = await startCollector()
  const traced = { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url }
  await using bridge = startFairlead(['bridge'], traced)
  await using dispatcher = startFairlead(['dispatch', '--builtin', 'at', '--listen', listen], traced)
  await dispatcher.logged(isServed)
  await create(kube, 'e', 'large', 30)
  await until(
    async () => expect(await seriesAt(listen)).toEqual({ [counted('large')]: 1, [GRAMS]: expect.any(Number) }),
    {
      unless: () => expect(bridge.logs.filter(({ level }) => level === 'error')).toEqual([]),
    },
  )
  await kube.patch(resourcePath(RECONCILERS, undefined, 'parcel'), { spec: { metrics: [LAST_GRAMS] } }, 'merge')
  await until(async () => expect(Object.keys(await seriesAt(listen))).toEqual([GRAMS]))
  await until(() => {
    const call = collector.spans.find(({ name }) => name === 'call parcel')
    expect(collector.spans.find(({ spanId }) => spanId === call?.parentSpanId)?.name).toBe('run parcel')
  })
})
