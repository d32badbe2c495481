import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { addImage, type Cluster, clusterStatus, ProcessGroup, startCluster, stopCluster } from '#lab'
import { nodeHolder } from '../../packages/lab/node/node.ts'
import { nodePaths } from '../../packages/lab/node/options.ts'
import { readNodeFacts } from '../../packages/lab/node/requirements.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { shortTempDir } from '../support/servers.ts'
import { tracesOfNodes } from './node-traces.ts'
import { ONCE, pod, sh } from './pods.ts'

const REPOSITORY = join(import.meta.dirname, '../..')

const turn = await takeTurnWithNode()
afterAll(turn.end)

/** Crashes a process whose cluster was to remain, with a running pod, so that no process can clean up. */
async function crashWithPod(dir: string): Promise<void> {
  const script = `import { startCluster } from '#lab'
    await startCluster({ dir: ${JSON.stringify(dir)}, node: 'real', nats: false })
    console.log('up')
    setInterval(() => {}, 1000)`
  const args = ['--input-type=module', '-e', script]
  const starter = spawn(process.execPath, args, { cwd: REPOSITORY, stdio: ['ignore', 'pipe', 'inherit'] })
  const up = once(starter.stdout, 'data')
  await Promise.race([up, once(starter, 'exit').then(([code]) => expect(code, 'it ended early').toBe(null))])
  const kubectl = await kubectlFor({ kubeconfig: join(dir, 'kubeconfig') })
  await kubectl(['create', '-f', '-'], pod('lasting', sh('sleep 1000')))
  await kubectl(['wait', '--for=condition=Ready', 'pod/lasting', '--timeout=240s'])
  starter.kill('SIGKILL')
  for (const name of ['kubelet', 'containerd']) new ProcessGroup(dir).signal(name, 'SIGKILL')
  await vi.waitUntil(async () => (await nodeHolder()) === undefined, { timeout: 60_000 })
}

describe.skipIf(turn.skip)('a real node', () => {
  let before: Awaited<ReturnType<typeof tracesOfNodes>>
  let cluster: Cluster
  let kubectl: Kubectl
  let crashed: string
  let dir: string

  beforeAll(async () => {
    // The kernel removes the links of pods that were killed in its own time.
    const isClean = async () => {
      before = await tracesOfNodes()
      return before['links']?.length === 0
    }
    await vi.waitUntil(isClean, { timeout: 60_000 }).catch(() => undefined)
    crashed = await shortTempDir()
    await crashWithPod(crashed)
    await mkdir('/var/lib/fairlead-0123456789/registry', { recursive: true }) // as after a loss of power
    dir = await shortTempDir()
    cluster = await startCluster({ dir, node: 'real', nats: false, dieWithParent: true })
    kubectl = await kubectlFor(cluster)
  })
  afterAll(async () => {
    await Promise.all([crashed, dir].map((each) => stopCluster(each, { removeDir: true })))
  })

  const apply = (...items: object[]) => kubectl(['create', '-f', '-'], { apiVersion: 'v1', kind: 'List', items })
  const phase = (name: string, wanted: string) =>
    kubectl(['wait', `--for=jsonpath={.status.phase}=${wanted}`, `pod/${name}`, '--timeout=240s'])

  it('clears away first what one left behind whose starter, kubelet and containerd were killed', async () => {
    const traces = JSON.stringify(await tracesOfNodes())
    expect(traces).toContain(nodePaths(dir).id)
    expect(traces).not.toContain(nodePaths(crashed).id)
    expect(traces).not.toContain('fairlead-0123456789')
    expect(clusterStatus(crashed).processes).toEqual([])
  })

  it('runs `image: busybox` with pull policy Always, and its output can be read', async () => {
    await apply(pod('hello', sh('echo YAY'), { restartPolicy: 'OnFailure' }))
    await phase('hello', 'Succeeded')
    expect(await kubectl(['logs', 'hello'])).toBe('YAY\n')
  })

  it('shows the exit code of a program that fails, and an image that does not exist', async () => {
    await apply(pod('three', sh('exit 3'), ONCE), pod('nowhere', { image: 'registry.example/no/such:v1' }))
    await phase('three', 'Failed')
    const code = 'jsonpath={.status.containerStatuses[0].state.terminated.exitCode}'
    expect(await kubectl(['get', 'pod', 'three', '-o', code])).toBe('3')
    const reason = 'jsonpath={.status.containerStatuses[0].state.waiting.reason}'
    const waiting = () => kubectl(['get', 'pod', 'nowhere', '-o', reason])
    await expect.poll(waiting, { timeout: 60_000, interval: 300 }).toMatch(/^(ErrImagePull|ImagePullBackOff)$/)
  })

  it('lets pods find services by name, those of the API server too', async () => {
    const port = { name: 'http', port: 80, targetPort: 8080 }
    const metadata = { name: 'web' }
    await apply(
      pod('web', {
        ...sh('echo hi > index.html; exec httpd -f -p 8080'),
        readinessProbe: { periodSeconds: 1, tcpSocket: { port: 8080 } },
      }),
      { apiVersion: 'v1', kind: 'Service', metadata, spec: { selector: { app: 'web' }, ports: [port] } },
    )
    await kubectl(['wait', '--for=condition=Ready', 'pod/web', '--timeout=240s'])
    const ask = 'until wget -qO- http://web.default.svc.cluster.local; do sleep 0.1; done; nc kubernetes 443 </dev/null'
    await apply(pod('asks', sh(ask), ONCE))
    await phase('asks', 'Succeeded')
    expect(await kubectl(['logs', 'asks'])).toBe('hi\n')
  })

  it('runs images that were made from files, as the user they name', async () => {
    await addImage(cluster.registryUrl ?? '', 'registry.example/team/app:v1', {
      files: {
        'bin/busybox': { from: (await readNodeFacts()).commands.busybox ?? '' },
        'app/run': { content: '#!/bin/busybox sh\necho "$GREETING from $(/bin/busybox id -u)"\n', mode: 0o755 },
      },
      config: { Entrypoint: ['/app/run'], User: '65532', Env: ['GREETING=hello'] },
    })
    await apply(pod('app', { image: 'registry.example/team/app:v1' }, ONCE))
    await phase('app', 'Succeeded')
    expect(await kubectl(['logs', 'app'])).toBe('hello from 65532\n')
  })

  it('is the only one of a machine: the next is told whose it is', async () => {
    const other = await shortTempDir()
    await expect(startCluster({ dir: other, node: 'real', nats: false })).rejects.toThrow(dir)
    await rm(other, { recursive: true })
    expect(await kubectl(['get', 'nodes', '-o', 'name'])).toBe('node/fairlead-node\n')
  })

  it('leaves nothing behind when it is stopped', async () => {
    await cluster.stop()
    expect(await tracesOfNodes()).toEqual(before)
  })
})
