import { readdir, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { expect, it } from 'vitest'
import { freePorts, releasePorts, requirePort } from '../../local/ports.ts'
import { shortTempDir } from '../support/servers.ts'

it('gives no port twice, however many ask at once', async () => {
  const asked = await Promise.all(Array.from({ length: 20 }, () => freePorts(10)))
  expect(new Set(asked.flat()).size).toBe(200)
})

it('gives only ports that outgoing connections are never given', async () => {
  for (const port of await freePorts(50)) expect(port).toSatisfy((it: number) => it >= 10_000 && it < 32_000)
})

it('says what a taken port was wanted for', async () => {
  const [port = 0] = await freePorts(1)
  expect(await requirePort(port, 'nats-server')).toBe(port)
  const server = createServer()
  await new Promise<void>((listening) => server.listen(port, '127.0.0.1', listening))
  await expect(requirePort(port, 'nats-server')).rejects.toThrow(`port ${port}, wanted for nats-server, is taken`)
  server.close()
})

it('leaves no reservation behind that a process gives up', async () => {
  const before = process.env['TMPDIR']
  process.env['TMPDIR'] = await shortTempDir()
  try {
    await freePorts(3)
    expect(await readdir(tmpdir())).toHaveLength(1)
    releasePorts()
    expect(await readdir(tmpdir())).toEqual([])
  } finally {
    await rm(tmpdir(), { recursive: true })
    if (before === undefined) delete process.env['TMPDIR']
    else process.env['TMPDIR'] = before
  }
})
