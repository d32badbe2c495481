import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { get } from 'node:https'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type BinaryPaths,
  type Cluster,
  clusterStatus,
  controlPlaneBinaries,
  ensureBinaries,
  existingServers,
  silentProgress,
  startCluster,
  toolBinaries,
} from '#lab'
import { shortTempDir, startTestCluster } from '../support/servers.ts'
import { programsWith, until } from './support.ts'

const run = promisify(execFile)

let binaries: BinaryPaths
const kubectl = async (kubeconfig: string, ...args: string[]): Promise<string> =>
  (await run(binaries('kubectl'), ['--kubeconfig', kubeconfig, '--cache-dir', `${kubeconfig}-cache`, ...args])).stdout

beforeAll(async () => {
  binaries = await ensureBinaries([...controlPlaneBinaries, ...toolBinaries], silentProgress)
})

describe('a whole cluster', () => {
  let cluster: Cluster & AsyncDisposable
  const k = (...args: string[]): Promise<string> => kubectl(cluster.kubeconfig, ...args)
  beforeAll(async () => {
    cluster = await startTestCluster({ nats: true, controllers: true, audit: true })
  })
  afterAll(() => cluster[Symbol.asyncDispose]())

  it('is Kubernetes 1.36 and says so', async () => {
    expect(await k('version')).toContain('Server Version: v1.36.')
  })

  it('lets nobody in without a certificate or token', async () => {
    const request = get(`${cluster.apiServer}/version`, { rejectUnauthorized: false })
    const [answer] = (await once(request, 'response')) as [IncomingMessage]
    answer.resume()
    expect(answer.statusCode).toBe(401)
  })

  it('gives a service account its rights by role and no others', async () => {
    await k('create', 'role', 'reader', '--verb=get,list', '--resource=configmaps')
    await k('create', 'rolebinding', 'reader', '--role=reader', '--serviceaccount=default:default')
    const token = (await k('create', 'token', 'default')).trim()
    await writeFile(join(cluster.dir, 'sa'), withToken(await k('config', 'view', '--raw', '-o', 'json'), token))
    const asAccount = (...args: string[]): Promise<string> => kubectl(join(cluster.dir, 'sa'), ...args)
    // The API server knows a role a moment after it has stored it.
    await until(() => asAccount('get', 'configmaps', '-o', 'name').then((out) => out.includes('kube-root-ca.crt')))
    await expect(asAccount('get', 'secrets')).rejects.toThrow('Forbidden')
  })

  it('collects what belonged to an object that is gone', async () => {
    await k('create', 'configmap', 'owner')
    const uid = await k('get', 'configmap', 'owner', '-o', 'jsonpath={.metadata.uid}')
    const owner = { apiVersion: 'v1', kind: 'ConfigMap', name: 'owner', uid }
    await k('create', 'configmap', 'owned')
    await k('patch', 'configmap', 'owned', '--patch', JSON.stringify({ metadata: { ownerReferences: [owner] } }))
    await k('delete', 'configmap', 'owner')
    await k('wait', '--for=delete', 'configmap/owned', '--timeout=240s')
  })

  it('keeps its objects and its address when kube-apiserver crashes and comes back', async () => {
    await k('create', 'configmap', 'kept')
    cluster.processes.signal('kube-apiserver', 'SIGKILL')
    await cluster.restart('kube-apiserver')
    expect(await k('get', 'configmap', 'kept', '-o', 'name')).toBe('configmap/kept\n')
  })

  it('comes back with its objects after a crash of everything', async () => {
    await k('create', 'configmap', 'survivor')
    await Promise.all(cluster.processes.names().map((name) => cluster.processes.kill(name)))
    await cluster.recover()
    expect(await k('get', 'configmap', 'survivor', '-o', 'name')).toBe('configmap/survivor\n')
    expect(clusterStatus(cluster.dir)).toMatchObject({ running: true })
  })

  it('tells of every write what the API server saw of it', async () => {
    await k('create', 'configmap', 'seen')
    await expect(k('create', 'configmap', 'seen')).rejects.toThrow('already exists')
    const seen = (await cluster.audit()).filter(({ name, verb }) => name === 'seen' && verb === 'create')
    expect(seen).toMatchObject([
      { resource: 'configmaps', namespace: 'default', code: 201, user: 'fairlead-local-admin' },
      { resource: 'configmaps', namespace: 'default', code: 409, userAgent: expect.stringContaining('kubectl') },
    ])
  })

  it('is used instead of one of its own where KUBECONFIG and NATS_URL name it', async () => {
    const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats!.url }
    expect(await existingServers(env)).toEqual({ kubeconfig: cluster.kubeconfig, natsUrl: cluster.nats!.url })
  })

  it('runs beside another one, each with its own objects, which stops without leaving a process', async () => {
    const other = await startTestCluster()
    await kubectl(other.kubeconfig, 'create', 'namespace', 'only-in-other')
    expect(await kubectl(other.kubeconfig, 'get', 'namespaces', '-o', 'name')).toContain('only-in-other')
    expect(await k('get', 'namespaces', '-o', 'name')).not.toContain('only-in-other')
    await other[Symbol.asyncDispose]()
    // The reaper goes a moment later, when it reads that it is not needed.
    await until(() => programsWith(other.dir).length === 0)
    expect(await k('get', 'namespaces', '-o', 'name')).toContain('default')
  })
})

describe('clusters', () => {
  it('take no folder that holds anything else', async () => {
    const dir = await shortTempDir()
    await mkdir(join(dir, 'etcd'))
    await expect(startCluster({ dir })).rejects.toThrow(
      `${dir} holds files of others (etcd), so no cluster is started there`,
    )
    await rm(dir, { recursive: true })
  })

  it('say which port is taken, and start nothing', async () => {
    const other = createServer().listen(0, '127.0.0.1')
    await once(other, 'listening')
    const taken = (other.address() as AddressInfo).port
    const dir = await shortTempDir()
    await expect(startCluster({ dir, nats: false, controllers: false, ports: { apiServer: taken } })).rejects.toThrow(
      `port ${taken}, wanted for kube-apiserver, is taken: stop the process that has it, or choose another port`,
    )
    expect(programsWith(dir)).toEqual([])
    other.close()
    await rm(dir, { recursive: true })
  })

  it('stop what they have started when a start is given up', async () => {
    const dir = await shortTempDir()
    const abort = new AbortController()
    const starting = startCluster({ dir, signal: abort.signal })
    await until(() => programsWith(`${dir}/etcd`).length > 0)
    abort.abort(new Error('not wanted any more'))
    await expect(starting).rejects.toThrow('not wanted any more')
    expect(programsWith(dir)).toEqual([])
    await rm(dir, { recursive: true })
  })
})

describe('servers that the environment names', () => {
  it('are refused with the variable, its value and the way out', async () => {
    await expect(existingServers({ KUBECONFIG: '/no/such/kubeconfig' })).rejects.toThrow(
      /^KUBECONFIG=\/no\/such\/kubeconfig cannot be used: .* Unset KUBECONFIG to have/s,
    )
    await expect(existingServers({ NATS_URL: 'nats://127.0.0.1:9' })).rejects.toThrow(
      /^NATS_URL=nats:\/\/127\.0\.0\.1:9 cannot be used: connect ECONNREFUSED/,
    )
  })

  it('are none where it names none', async () => {
    expect(await existingServers({})).toEqual({})
  })
})

function withToken(kubeconfig: string, token: string): string {
  const config = JSON.parse(kubeconfig) as { users: { user: object }[] }
  return JSON.stringify({ ...config, users: config.users.map((user) => ({ ...user, user: { token } })) })
}
