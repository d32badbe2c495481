import { execFile } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  asShellExports,
  clusterStatus,
  type DevelopmentOptions,
  defaultClusterDir,
  developmentEnvironment,
  ensureDevelopmentCluster,
  openCluster,
  stopCluster,
} from '#lab'
import { BIN, fairlead } from '../support/fairlead.ts'
import { shortTempDir } from '../support/servers.ts'

const run = promisify(execFile)

describe('the cluster for development', () => {
  let options: DevelopmentOptions
  beforeAll(async () => {
    options = { dir: await shortTempDir(), node: 'none', nats: false }
  })
  afterAll(async () => {
    await stopCluster(options.dir)
    await rm(options.dir, { recursive: true })
  })

  it('is started once, also by two at once, and is found by who comes later', async () => {
    const [one, two] = await Promise.all([ensureDevelopmentCluster(options), ensureDevelopmentCluster(options)])
    expect(one).toMatchObject({ running: true })
    expect(two).toEqual(one)
    expect(await ensureDevelopmentCluster(options)).toEqual(one)
  })

  it('is what kubectl uses in a shell that took its variables', async () => {
    const exports = asShellExports(developmentEnvironment(clusterStatus(options.dir), process.env))
    const { stdout } = await run('/bin/sh', [
      '-c',
      `${exports} kubectl --cache-dir="$KUBECONFIG-cache" get namespaces -o name`,
    ])
    expect(stdout).toContain('namespace/kube-system')
  })

  it('gives a shell no variables while a server is dead: eval fails, and kubectl finds no other cluster', async () => {
    await openCluster(options.dir).processes.kill('kube-scheduler')
    const command = 'eval "$("$0" "$1" local env --dir "$2")"; echo "$? $KUBECONFIG"'
    const env = { ...process.env, KUBECONFIG: '' }
    const { stdout, stderr } = await run('bash', ['-c', command, process.execPath, BIN, options.dir], { env })
    expect(stdout).toBe(`1 ${options.dir}/kubeconfig\n`)
    expect(stderr).toBe(
      `fairlead: kube-scheduler of the local cluster in ${options.dir} died (logs in ${options.dir}/log): start it again with \`fairlead local up --dir ${options.dir}\`\n`,
    )
    const json = await fairlead(['local', 'env', '--dir', options.dir, '-o', 'json'])
    expect(json).toMatchObject({ code: 1, stdout: '' })
    await ensureDevelopmentCluster(options)
  })

  it('keeps its objects when servers died meanwhile', async () => {
    const cluster = openCluster(options.dir)
    const kubectl = (...args: string[]) =>
      run(join(options.dir, 'bin', 'kubectl'), [`--kubeconfig=${cluster.kubeconfig}`, ...args])
    await kubectl('create', 'configmap', 'kept')
    await Promise.all(['etcd', 'kube-scheduler'].map((name) => cluster.processes.kill(name)))
    expect(clusterStatus(options.dir).running).toBe(false)
    expect(await ensureDevelopmentCluster(options)).toMatchObject({ running: true })
    expect((await kubectl('get', 'configmap', 'kept', '-o', 'name')).stdout).toBe('configmap/kept\n')
  })

  it('has no variables when it does not run, and says how to start it', async () => {
    await stopCluster(options.dir)
    expect(() => developmentEnvironment(clusterStatus(options.dir), {})).toThrow(
      `no local cluster runs in ${options.dir}: start it with \`fairlead local up --dir ${options.dir}\``,
    )
    const ofUser = { ...clusterStatus(options.dir), dir: defaultClusterDir() }
    expect(() => developmentEnvironment(ofUser, {})).toThrow('start it with `fairlead local up`')
  })

  it('does not hold the pipes of the shell that has started it', async () => {
    const command = '"$0" "$1" local up --dir "$2" --node none 2> >(cat >&2) 2>&1 | tail -1'
    const { stdout } = await run('bash', ['-c', command, process.execPath, BIN, options.dir])
    expect(stdout).toBe(`Stop it:  fairlead local down --dir ${options.dir}\n`)
    expect(clusterStatus(options.dir).running).toBe(true)
  })
})

it('quotes a value so that the shell gives it back as it was', async () => {
  const odd = `it's "odd" $HOME \`x\` \\ end`
  const { stdout } = await run('/bin/sh', ['-c', `${asShellExports({ ODD: odd })} printf %s "$ODD"`])
  expect(stdout).toBe(odd)
})
