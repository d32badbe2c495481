import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type ClusterStatus, clusterStatus, stopCluster } from '#lab'
import { shortTempDir } from '../support/servers.ts'
import { programsWith, until } from './support.ts'

/** Starts a cluster in a process of its own, which is killed with SIGKILL as soon as all of it runs. */
async function killTheStarterOf(dir: string, options: object): Promise<ClusterStatus> {
  const door = new URL('../../packages/lab/index.ts', import.meta.url)
  const script = `
    const { startCluster } = await import(${JSON.stringify(door.href)})
    await startCluster(${JSON.stringify({ dir, controllers: false, ...options })})
    console.log('started')
    setInterval(() => {}, 1000)`
  const starter = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = new Promise((resolve) => starter.once('exit', resolve))
  await new Promise((resolve) => starter.stdout.once('data', resolve))
  const status = clusterStatus(dir)
  starter.kill('SIGKILL')
  await exited
  return status
}

describe('kill -9 of the process that started a cluster', () => {
  let dir: string
  beforeEach(async () => {
    dir = await shortTempDir()
  })
  afterEach(() => stopCluster(dir, { removeDir: true }))

  it('stops and removes all of it, when it was to die with that process', async () => {
    const before = await killTheStarterOf(dir, { dieWithParent: true, temporary: true })
    expect(before).toMatchObject({ running: true })
    expect(before.processes.map(({ name }) => name).sort()).toEqual(['etcd', 'kube-apiserver', 'nats'])
    await until(() => programsWith(dir).length === 0)
    expect(existsSync(dir)).toBe(false)
  })

  it('leaves it running otherwise, and any process can stop it', async () => {
    await killTheStarterOf(dir, { nats: true })
    expect(clusterStatus(dir).running).toBe(true)
    await stopCluster(dir)
    expect(programsWith(dir)).toEqual([])
    expect(clusterStatus(dir)).toEqual({ dir, running: false, processes: [] })
  })
})
