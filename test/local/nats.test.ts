import { describe, expect, it } from 'vitest'
import { connectJetStream } from '#jetstream'
import { startTestNats } from '../support/servers.ts'
import { eventually } from './support.ts'

const varz = async (url: string): Promise<Record<string, unknown>> =>
  (await (await fetch(`${url}/varz`)).json()) as Record<string, unknown>

describe('NATS on this machine', () => {
  it('serves JetStream on loopback, in a version that schedules messages', async () => {
    await using nats = await startTestNats()
    const about = await varz(nats.monitoringUrls[0]!)
    expect(about).toMatchObject({ host: '127.0.0.1', jetstream: { config: expect.anything() } })
    const [major = 0, minor = 0] = String(about['version']).split('.').map(Number)
    expect(major * 1000 + minor).toBeGreaterThanOrEqual(2015)
  })

  it('comes back on its port, with its streams, after a crash', async () => {
    await using nats = await startTestNats()
    const js = await connectJetStream({ servers: nats.url, name: 'test' })
    await js.admin.streams.add({ name: 'KEPT', subjects: ['kept'] })
    nats.signal('SIGKILL')
    await nats.restart()
    await eventually(() =>
      js.admin.streams.info('KEPT').then(
        () => true,
        () => false,
      ),
    )
    await js.close()
  })

  it('forms a cluster of three that outlives the crash of one server', async () => {
    await using nats = await startTestNats({ replicas: 3 })
    expect(nats.urls).toHaveLength(3)
    nats.signal('SIGKILL', 1)
    await nats.restart(1)
    await nats.ready()
  })
})
