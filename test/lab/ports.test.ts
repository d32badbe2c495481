import { execFile } from 'node:child_process'
import { rmdir } from 'node:fs/promises'
import { createServer } from 'node:net'
import { promisify } from 'node:util'
import { expect, it, vi } from 'vitest'
import { freePorts, requirePort } from '../../packages/lab/ports.ts'
import { shortTempDir } from '../support/servers.ts'

const run = promisify(execFile)

it('gives no port twice, however many ask at once', async () => {
  const asked = await Promise.all(Array.from({ length: 20 }, () => freePorts(10)))
  expect(new Set(asked.flat()).size).toBe(200)
})

it('gives only ports that outgoing connections are never given', async () => {
  for (const port of await freePorts(50)) expect(port).toSatisfy((it: number) => it >= 10_000 && it < 32_000)
})

it('gives no port that fetch refuses to connect to', async () => {
  const random = vi.spyOn(Math, 'random').mockReturnValueOnce(80.5 / 22_000)
  expect(await freePorts(1)).not.toEqual([10_080])
  random.mockRestore()
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
  const dir = await shortTempDir()
  const ports = new URL('../../packages/lab/ports.ts', import.meta.url).href
  const program = `
    const { freePorts, releasePorts } = await import(${JSON.stringify(ports)})
    const { readdirSync } = await import('node:fs')
    await freePorts(3)
    const reserved = readdirSync(process.env.TMPDIR).length
    releasePorts()
    console.log(reserved, readdirSync(process.env.TMPDIR).length)`
  // Runs in a process with a temporary folder of its own, so that the user's folder is never used.
  const args = ['--input-type=module', '--eval', program]
  const { stdout } = await run(process.execPath, args, { env: { PATH: process.env['PATH'], TMPDIR: dir } })
  await rmdir(dir)
  expect(stdout).toBe('1 0\n')
})
