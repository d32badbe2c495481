import { createServer } from 'node:net'
import { expect, it } from 'vitest'
import { freePorts, requirePort } from '../../local/ports.ts'

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
