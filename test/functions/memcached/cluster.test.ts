import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Memcached, memcached } from '#functions/memcached'
import { Deployment, Pod } from '#sdk'
import { type Kubectl, kubectlFor } from '../../support/kubectl.ts'

const cache = (name: string, spec: Parameters<typeof Memcached.of>[0]['spec']) =>
  Memcached.of({ metadata: { name }, spec })

let operators: RunningOperators
let kubectl: Kubectl

beforeAll(async () => {
  operators = await runOperators([memcached], { controllers: true, node: 'kwok' })
  kubectl = await kubectlFor(operators.cluster!)
})
afterAll(() => operators?.[Symbol.asyncDispose]())

const available = (name: string, size: number) =>
  operators.until(Memcached, name, (found) => {
    const condition = found?.status.conditions?.find(({ type }) => type === 'Available')
    return found?.status.nodes?.length === size && condition?.status === 'True'
  })

/** Names of its live pods, as the API server tells. */
async function podsOf(name: string): Promise<string[]> {
  const pods = await operators.list(Pod)
  const own = pods.filter(({ metadata }) => metadata.labels?.['app.kubernetes.io/instance'] === name)
  return own
    .filter(({ metadata }) => !metadata.deletionTimestamp)
    .map(({ metadata }) => metadata.name)
    .sort()
}

describe('a Memcached on a real cluster', () => {
  it('runs restricted pods, and is available when they are ready', async () => {
    await kubectl(['label', 'ns', 'default', 'pod-security.kubernetes.io/enforce=restricted'])
    await operators.create(Memcached, cache('a', { size: 2 }))
    const { status } = (await available('a', 2))!
    expect(status).toMatchObject({ replicas: 2, readyReplicas: 2, nodes: await podsOf('a') })
  })

  it('is scaled by kubectl scale, and lists the pods that there are', async () => {
    await kubectl(['scale', 'memcached/a', '--replicas=3'])
    expect((await available('a', 3))?.status.nodes).toEqual(await podsOf('a'))
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
    const [gone = ''] = await podsOf('a')
    await operators.delete(Pod, gone)
    await operators.until(Memcached, 'a', ({ status } = {} as never) => !status?.nodes?.includes(gone))
    expect((await available('a', 3))?.status.nodes).toEqual(await podsOf('a'))
  })

  it('is refused by the API server with a size that it must not have', async () => {
    await expect(operators.create(Memcached, cache('b', { size: 0 }))).rejects.toThrow('spec.size')
    await expect(operators.create(Memcached, cache('b', { size: 2, oddSize: true }))).rejects.toThrow('odd number')
    await operators.create(Memcached, cache('b', { size: 1, oddSize: true }))
    await available('b', 1)
  })

  it('goes with all that it has, and says so, and leaves the other one alone', async () => {
    await operators.delete(Memcached, 'a')
    await operators.until(Memcached, 'a', (found) => found === undefined)
    await operators.until(Deployment, 'a', (found) => found === undefined)
    expect(await kubectl(['get', 'events', '--field-selector=reason=Deleting', '-o', 'name'])).toContain('event/')
    expect((await available('b', 1))?.status.nodes).toEqual(await podsOf('b'))
  })
})
