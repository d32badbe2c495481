import { expect, it } from 'vitest'
import { until } from '../queue/support.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'

it('without the definition of Reconcilers up says once what to do, and begins when it is there', async () => {
  await using cluster = await borrowCluster({ nats: true })
  const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '' }
  await using running = startFairlead(['up', '--builtin', 'all'], env)
  const tries = () => running.logs.filter(({ msg }) => msg === 'a watch waits to go on').length
  await until(() => expect(tries()).toBeGreaterThan(2))
  const told = running.logs.filter(({ level }) => level === 'warn' || level === 'error')
  expect(told.map(({ msg }) => msg)).toEqual([expect.stringContaining('run fairlead install, or up --install')])
  expect(await command(['install', '--builtin', 'all'], env)).toMatchObject({ code: 0 })
  await running.logged(({ msg, reconciler }) => msg === 'reconciler served' && reconciler === 'at')
})
