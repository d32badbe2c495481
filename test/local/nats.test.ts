import { describe, expect, it } from 'vitest'
import { startTestNats } from '../support/servers.ts'

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

  it('comes back on the same port with the same identity of its store after a crash', async () => {
    await using nats = await startTestNats()
    const before = await varz(nats.monitoringUrls[0]!)
    nats.signal('SIGKILL')
    await nats.restart()
    const after = await varz(nats.monitoringUrls[0]!)
    expect(after['port']).toBe(before['port'])
    expect(after['server_id']).not.toBe(before['server_id'])
  })

  it('forms a cluster of three that outlives the crash of one server', async () => {
    await using nats = await startTestNats({ replicas: 3 })
    expect(nats.urls).toHaveLength(3)
    nats.signal('SIGKILL', 1)
    await nats.restart(1)
    await nats.ready()
  })
})
