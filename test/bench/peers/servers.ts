import { spawnSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import type { ProcessGroup } from '#lab'
import { freePorts } from '../../../packages/lab/ports.ts'

/** A server under measurement. */
export interface Server {
  url: string
  pid: number
}

/** Its append-only file is written at once and synced every second, Redis' default for it; nothing else is stored. */
const DURABILITY = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--save', '']

/** The server is not available; the message contains the reason. */
export class NoServerError extends Error {
  override readonly name = 'NoServerError'
}

export async function startRedis(processes: ProcessGroup, say: (what: string) => void): Promise<Server> {
  const command = redisServer(say)
  const [port = 0] = await freePorts(1)
  const dir = join(processes.dir, 'redis')
  mkdirSync(dir)
  const args = ['--bind', '127.0.0.1', '--port', String(port), '--dir', dir, ...DURABILITY]
  const { pid } = await processes.start({ name: 'redis', command, args })
  const url = `redis://127.0.0.1:${port}`
  await answered(url)
  return { url, pid }
}

function redisServer(say: (what: string) => void): string {
  const found = which('redis-server')
  if (found !== undefined) return found
  if (process.getuid?.() !== 0) throw new NoServerError('no redis-server on PATH, and only root may install one')
  if (which('apt-get') === undefined) throw new NoServerError('no redis-server on PATH, and no apt-get to install it')
  say('no redis-server on PATH: it is installed with apt-get')
  // Without its service: the measurement starts its own.
  const shell = 'apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends redis-server'
  const { status, stderr } = spawnSync('sh', ['-c', shell], { encoding: 'utf8' })
  const installed = which('redis-server')
  if (status === 0 && installed !== undefined) return installed
  throw new NoServerError(`redis-server cannot be installed: ${stderr.trim().split('\n').at(-1)}`)
}

function which(program: string): string | undefined {
  const { status, stdout } = spawnSync('sh', ['-c', `command -v ${program}`], { encoding: 'utf8' })
  return status === 0 ? stdout.trim() : undefined
}

async function answered(url: string): Promise<void> {
  const client = new Redis(url, { lazyConnect: true, retryStrategy: () => 50 })
  client.on('error', () => undefined)
  await client.connect().catch(() => sleep(200))
  await client.ping()
  client.disconnect()
}
