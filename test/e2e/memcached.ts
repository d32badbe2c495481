import { once } from 'node:events'
import { connect } from 'node:net'
import type { RunningOperators } from 'fairlead/testing/cluster'
import { beforeAll, expect, it } from 'vitest'
import { Memcached } from '#functions/memcached'
import { cacheDir } from '#lab'
import { Deployment, Pod } from '#sdk'
import { addMemcachedImage } from '../../deploy/images/memcached/index.ts'
import type { Kubectl } from '../support/kubectl.ts'
import type { Scene } from './on-node.test.ts'

const cache = (name: string, spec: Parameters<typeof Memcached.of>[0]['spec']) =>
  Memcached.of({ metadata: { name }, spec })

/** The longest name that the API accepts. */
const LONGEST = 'b'.repeat(253)

async function ask(host: string, port: number, request: string): Promise<string> {
  const socket = connect(port, host).setEncoding('utf8')
  socket.end(`${request}\r\nquit\r\n`)
  let answer = ''
  socket.on('data', (text) => (answer += text))
  await once(socket, 'close')
  return answer
}

/** Pretended: no server answers, for pods only pretend to run. */
export function memcachedOnNode(scene: () => Scene, { pretended }: { pretended: boolean }): void {
  let operators: RunningOperators
  let kubectl: Kubectl

  beforeAll(async () => {
    ;({ operators, kubectl } = scene())
    if (!pretended) await addMemcachedImage(operators.cluster!.registryUrl!, cacheDir(process.env))
  })

  /** Resolves with the object when all requested servers run. */
  async function available(name: string, size: number) {
    const found = await operators.until(Memcached, name, (found) => {
      const isSo = (type: string, status: string) =>
        found?.status.conditions?.some(
          (one) => one.type === type && one.status === status && one.observedGeneration === found.metadata.generation,
        ) === true
      return found?.status.nodes?.length === size && isSo('Available', 'True') && isSo('Progressing', 'False')
    })
    return found!
  }

  async function podsOf(name: string) {
    const pods = await operators.list(Pod)
    return pods.filter(
      ({ metadata: { labels, deletionTimestamp } }) =>
        labels?.['app.kubernetes.io/instance'] === name && deletionTimestamp === undefined,
    )
  }

  /** Returns the names of its live pods in the API server. */
  const namesOf = async (name: string) => (await podsOf(name)).map(({ metadata }) => metadata.name).sort()

  /** What each of its servers answers; nothing, where pods only pretend to run. */
  async function answersOf(name: string, port: number, request: string): Promise<string[]> {
    if (pretended) return []
    const pods = await podsOf(name)
    return Promise.all(pods.map(({ status }) => ask(status?.podIP ?? '', port, request)))
  }

  it('runs where the restricted Pod Security Standard is enforced, and is available when its servers are', async () => {
    await kubectl(['label', 'ns', 'default', 'pod-security.kubernetes.io/enforce=restricted'])
    await expect(kubectl(['run', 'loose', '--image=busybox'])).rejects.toThrow('violates PodSecurity "restricted')
    await operators.create(Memcached, cache('a', { size: 2 }))
    const { status } = await available('a', 2)
    expect(status).toMatchObject({ replicas: 2, readyReplicas: 2, nodes: await namesOf('a') })
    for (const answer of await answersOf('a', 11_211, 'set k 0 0 1\r\nv\r\nget k'))
      expect(answer).toBe('STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n')
  })

  it('is scaled by kubectl scale, and lists the pods that there are', async () => {
    await kubectl(['scale', 'memcached/a', '--replicas=3'])
    expect((await available('a', 3)).status.nodes).toEqual(await namesOf('a'))
    expect(await kubectl(['get', 'mc', 'a'])).toMatch(/^a +3 +3 +True /m)
    const scale = JSON.parse(
      await kubectl(['get', '--raw', '/apis/cache.example.com/v1alpha1/namespaces/default/memcacheds/a/scale']),
    )
    expect(scale).toMatchObject({
      spec: { replicas: 3 },
      status: { replicas: 3, selector: 'app.kubernetes.io/name=memcached,app.kubernetes.io/instance=a' },
    })
  })

  it('replaces a pod that is deleted, also in its list', async () => {
    const [gone = ''] = await namesOf('a')
    await operators.delete(Pod, gone)
    await operators.until(Memcached, 'a', ({ status } = {} as never) => !status?.nodes?.includes(gone))
    expect((await available('a', 3)).status.nodes).toEqual(await namesOf('a'))
  })

  it('rolls out another port and memory: its servers really have them', async () => {
    const before = await namesOf('a')
    await operators.patch(Memcached, 'a', { spec: { size: 1, containerPort: 12_345, memoryMegabytes: 32 } })
    const { status } = await available('a', 1)
    expect(before).not.toContain(status.nodes?.[0])
    for (const answer of await answersOf('a', 12_345, 'stats settings'))
      expect(answer).toMatch(/STAT maxbytes 33554432\r\n[^]*STAT tcpport 12345\r\n/)
  })

  it('is refused by the API server with a size that it must not have', async () => {
    await expect(operators.create(Memcached, cache('b', { size: 0 }))).rejects.toThrow('spec.size')
    await expect(operators.create(Memcached, cache('b', { size: 2, oddSize: true }))).rejects.toThrow('odd number')
    await operators.create(Memcached, cache(LONGEST, { size: 1, oddSize: true }))
    await available(LONGEST, 1)
  })

  it('goes with all that it has, and says so, and leaves the other one alone', async () => {
    await operators.delete(Memcached, 'a')
    await operators.until(Memcached, 'a', (found) => found === undefined)
    await operators.until(Deployment, 'a', (found) => found === undefined)
    expect(await kubectl(['get', 'events', '--field-selector=reason=Deleting', '-o', 'name'])).toContain('event/')
    const { status } = await available(LONGEST, 1)
    expect(status.nodes).toEqual([expect.stringMatching(/^bbb/)])
  })
}
