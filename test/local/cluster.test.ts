import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { type BinaryPaths, controlPlaneBinaries, ensureBinaries, silentProgress } from '#local'
import { startTestCluster } from '../support/servers.ts'

const run = promisify(execFile)

describe('a cluster on this machine', () => {
  let binaries: BinaryPaths
  beforeAll(async () => {
    binaries = await ensureBinaries(controlPlaneBinaries, silentProgress)
  })
  const kubectl = async (kubeconfig: string, ...args: string[]): Promise<string> =>
    (await run(binaries('kubectl'), ['--kubeconfig', kubeconfig, ...args])).stdout.trim()

  it('runs beside another one, each with its own objects', async () => {
    await using one = await startTestCluster()
    await using two = await startTestCluster()
    await kubectl(one.kubeconfig, 'create', 'namespace', 'only-in-one')
    expect(await kubectl(one.kubeconfig, 'get', 'namespaces', '-o', 'name')).toContain('only-in-one')
    expect(await kubectl(two.kubeconfig, 'get', 'namespaces', '-o', 'name')).not.toContain('only-in-one')
  })
})
