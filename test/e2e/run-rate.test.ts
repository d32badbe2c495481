import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { tooMany } from '../queue/rate-law.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'
import { left, OF_TEAM, OWN, right, single } from './paced-functions.ts'

const MODULE = fileURLToPath(new URL('paced-functions.ts', import.meta.url))
const FUNCTIONS = [single, left, right]
const OBJECTS = 16
/** The log has whole milliseconds. */
const ROUNDING_MS = 1

it('rates of a Reconciler and of a team hold for all dispatchers together', async () => {
  await using cluster = await borrowCluster({ nats: true })
  const rates = { shop: { reconcilers: ['left', 'right'], ...OF_TEAM } }
  const env = {
    KUBECONFIG: cluster.kubeconfig,
    NATS_URL: cluster.nats?.url ?? '',
    FAIRLEAD_RUN_RATES: JSON.stringify(rates),
  }
  await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  await using up = startFairlead(['up', '--install', '-f', MODULE], env)
  await up.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'right')
  await using second = startFairlead(['dispatch', '-f', MODULE], env)
  await using third = startFairlead(['dispatch', '-f', MODULE], env)
  const processes: FairleadProcess[] = [up, second, third]
  for (const one of [second, third])
    for (const { name } of FUNCTIONS)
      await one.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === name)

  await Promise.all(
    FUNCTIONS.flatMap(({ for: { group, version, resource, kind } }) =>
      Array.from({ length: OBJECTS }, (_, index) => {
        const object = { apiVersion: `${group}/${version}`, kind, metadata: { name: `o-${index}` }, spec: {} }
        return kube.create(resourcePath({ group, version, resource }, 'default'), object)
      }),
    ),
  )
  for (const { for: kind } of FUNCTIONS)
    await until(async () => {
      const { items } = await kube.get<{ items: (KubeObject & { status?: { seen?: boolean } })[] }>(
        resourcePath(kind, 'default'),
      )
      return items.every(({ status }) => status?.seen === true)
    })
  const startsOf = (...names: string[]) =>
    processes.flatMap(({ logs }) =>
      logs.flatMap(({ step, reconciler = '', time }) =>
        step === 'started' && names.includes(reconciler) ? [Date.parse(time)] : [],
      ),
    )
  expect(startsOf('single').length).toBeGreaterThanOrEqual(OBJECTS)
  expect(startsOf('left', 'right').length).toBeGreaterThanOrEqual(2 * OBJECTS)
  const rounded = (rate: { perSecond: number; burst: number }) => ({
    ...rate,
    burst: rate.burst + (ROUNDING_MS * rate.perSecond) / 1000,
  })
  expect(tooMany(startsOf('single'), rounded(OWN))).toEqual([])
  expect(tooMany(startsOf('left', 'right'), rounded(OF_TEAM))).toEqual([])
})
