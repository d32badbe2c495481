import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import type { UsageRow } from '#events'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { freePorts } from '../../packages/lab/ports.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { cpuMsOf } from '../support/usage.ts'
import { until } from '../support/wait.ts'
import { HEAVY_MS } from './usage-functions.ts'

const MODULE = fileURLToPath(new URL('usage-functions.ts', import.meta.url))
const OBJECTS = 20
const EDITS = 4
const KINDS = [
  { plural: 'heavies', kind: 'Heavy', namespace: 'usage-heavy' },
  { plural: 'lights', kind: 'Light', namespace: 'usage-light' },
]
/** Within 5 %. */
const expectNear = (found: number, wanted: number) => expect(Math.abs(found / wanted - 1)).toBeLessThan(0.05)
const refOf = (resource: string) => ({ group: 'usage.example.com', version: 'v1', resource })

it('all rows together are what the process has used, within 5 %, and who computes pays', async () => {
  await using cluster = await borrowCluster({ nats: true })
  const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '' }
  await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  const [port = 0] = await freePorts(1)
  const listen = `127.0.0.1:${port}`
  await using up = startFairlead(['up', '--install', '-f', MODULE, '--listen', listen], { ...env, LOG_LEVEL: 'info' })
  await up.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'heavy')
  await up.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'light')

  for (const { namespace } of KINDS) await kube.create('/api/v1/namespaces', { metadata: { name: namespace } })
  for (let size = 1; size <= EDITS; size++) {
    const edits = KINDS.flatMap(({ plural, kind, namespace }) =>
      Array.from({ length: OBJECTS }, (_, index) => {
        const name = `o-${index}`
        const object = { apiVersion: 'usage.example.com/v1', kind, metadata: { name }, spec: { size } }
        const path = resourcePath(refOf(plural), namespace, size === 1 ? undefined : name)
        return size === 1 ? kube.create(path, object) : kube.patch(path, { spec: { size } }, 'merge')
      }),
    )
    await Promise.all(edits)
    for (const { plural, namespace } of KINDS)
      await until(async () => {
        const { items } = await kube.get<{ items: (KubeObject & { status?: { size?: number } })[] }>(
          resourcePath(refOf(plural), namespace),
        )
        return items.every(({ status }) => status?.size === size)
      })
  }

  const metrics = async () => {
    const text = await (await fetch(`http://${listen}/metrics`)).text()
    const sum = (name: string) =>
      [...text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))].reduce(
        (all, [, value]) => all + Number(value),
        0,
      )
    return sum
  }
  const isIdle = (sum: (name: string) => number) =>
    sum('controller_runtime_active_workers') === 0 && sum('workqueue_depth') === 0
  await until(async () => isIdle(await metrics()))
  const sum = await metrics()
  expectNear(1000 * sum('fairlead_usage_cpu_seconds_total'), cpuMsOf(up.pid))
  expectNear(sum('fairlead_usage_requests_total'), sum('rest_client_requests_total'))

  const cpuMs = cpuMsOf(up.pid)
  up.kill('SIGTERM')
  expect((await up.exited).code).toBe(0)
  const { stdout } = await command(['usage', '--by', 'function,namespace', '--since', '1d', '-o', 'json'], env)
  const rows = JSON.parse(stdout) as UsageRow[]
  expectNear(
    rows.reduce((all, one) => all + one.cpuMs, 0),
    cpuMs,
  )
  expect(rows.reduce((all, { runs }) => all + runs, 0)).toBe(sum('controller_runtime_reconcile_total'))

  const of = (name: string, namespace: string) =>
    rows.find((one) => one.function === name && one.namespace === namespace)!
  const [heavy, light] = [of('heavy', 'usage-heavy'), of('light', 'usage-light')]
  for (const row of [heavy, light]) {
    expect(row.runs).toBeGreaterThanOrEqual(OBJECTS)
    expect(row.writes).toBeGreaterThanOrEqual(2 * OBJECTS * EDITS)
    expect(row.requests).toBeGreaterThanOrEqual(row.writes)
    expect(row.storedBytes).toBeGreaterThan(row.writes * 1024)
  }
  // A run calls its function again after its writes.
  expect(heavy.cpuMs).toBeGreaterThan(OBJECTS * EDITS * HEAVY_MS)
  expect(light.cpuMs / light.writes).toBeLessThan(HEAVY_MS / 2)
})
