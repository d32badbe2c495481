import { describe, expect, it } from 'vitest'
import type { Nats } from '#lab'
import { connectJetStream } from '#nats'
import { startTestNats } from '../support/servers.ts'

const monitored = async (nats: Nats, page: string): Promise<Record<string, unknown>> =>
  (await (await fetch(`${nats.monitoringUrls[0]}/${page}`)).json()) as Record<string, unknown>

describe('NATS on this machine', () => {
  it('serves JetStream on loopback, in a version that schedules messages', async () => {
    await using nats = await startTestNats()
    const about = await monitored(nats, 'varz')
    expect(about).toMatchObject({ host: '127.0.0.1', jetstream: { config: expect.anything() } })
    const [major = 0, minor = 0] = String(about['version']).split('.').map(Number)
    expect(major * 1000 + minor).toBeGreaterThanOrEqual(2015)
  })

  it('comes back on its port, with its streams, after a crash', async () => {
    await using nats = await startTestNats()
    const js = await connectJetStream({ servers: nats.url, name: 'test' })
    await js.admin.streams.add({ name: 'KEPT', subjects: ['kept'] })
    await js.close()
    nats.signal('SIGKILL')
    await nats.restart()
    expect(await monitored(nats, 'jsz')).toMatchObject({ streams: 1 })
  })

  it('forms a cluster of three that outlives the crash of one server', async () => {
    await using nats = await startTestNats({ replicas: 3 })
    expect(nats.urls).toHaveLength(3)
    nats.signal('SIGKILL', 1)
    await nats.restart(1)
    await nats.ready()
  })
})
