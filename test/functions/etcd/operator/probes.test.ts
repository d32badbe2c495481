import { describe, expect, it } from 'vitest'
import { podFor } from '../../../../functions/etcd/operator/pod.ts'
import { EtcdCluster } from '../../../../functions/etcd/operator/resource.ts'
import { freePorts } from '../../../../packages/lab/ports.ts'
import { SOON, TestEtcd } from '../../../support/etcd.ts'
import { until } from '../../../support/wait.ts'

/** After so many entries etcd no longer has its whole log, and a new member is sent a snapshot. */
const ENTRIES = 150

const cluster = EtcdCluster.of({ metadata: { name: 'ex', namespace: 'default' }, spec: { size: 3 } })
const birth = { name: 'ex-a', members: ['ex-a'], state: 'new', version: '3.7.3' } as const
const [container] = podFor(EtcdCluster.parse(cluster), birth, 'policy').spec?.containers ?? []
const pathOf = (probe: 'startupProbe' | 'readinessProbe'): string => container?.[probe]?.httpGet?.path ?? ''

describe.each([['etcd-3.6'], ['etcd']] as const)('the probes of a member, by %s', (binary) => {
  it('call a learner started and not ready, and a voter ready', async () => {
    await using etcd = await TestEtcd.open()
    const [port] = await freePorts(1)
    const passes = async (probe: 'startupProbe' | 'readinessProbe'): Promise<boolean> => {
      const answer = await fetch(`http://127.0.0.1:${port}${pathOf(probe)}`)
      return answer.ok
    }
    await etcd.start('a', { binary })
    await etcd.serves('a')
    using client = etcd.open('a')
    for (let at = 0; at < ENTRIES; at++)
      await client.call('put', { key: Buffer.from('k'), value: Buffer.from(String(at)) }, SOON)
    await etcd.name('b')
    const { member } = await client.call('memberAdd', { peerURLs: [etcd.peerUrl('b')], isLearner: true }, SOON)
    const args = [`--listen-metrics-urls=http://127.0.0.1:${port}`]
    await etcd.start('b', { binary, state: 'existing', cluster: ['a', 'b'], args })

    await until(() => passes('startupProbe'), { leastMs: 1 })
    const answers = await Promise.all(Array.from({ length: 20 }, () => passes('readinessProbe')))
    expect(answers.filter((isReady) => isReady)).toEqual([])
    await client.call('memberPromote', { ID: member.ID }, SOON)
    await until(() => passes('readinessProbe'))
  })
})
