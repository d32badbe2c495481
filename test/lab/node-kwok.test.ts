import { describe, expect, it } from 'vitest'
import { kubectlFor } from '../support/kubectl.ts'
import { startTestCluster } from '../support/servers.ts'
import { pod, sh } from './pods.ts'

describe('a node that only pretends', () => {
  it('takes a pod that ends to Succeeded, keeps one that lasts Running, and lets pods be deleted', async () => {
    await using cluster = await startTestCluster({ node: 'kwok', controllers: true })
    const kubectl = await kubectlFor(cluster)
    const items = [pod('ends', sh('exit 3'), { restartPolicy: 'OnFailure' }), pod('lasts', {})]
    await kubectl(['create', '-f', '-'], { apiVersion: 'v1', kind: 'List', items })
    await kubectl(['wait', '--for=jsonpath={.status.phase}=Succeeded', 'pod/ends', '--timeout=240s'])
    await kubectl(['wait', '--for=condition=Ready', 'pod/lasts', '--timeout=240s'])
    await kubectl(['delete', 'pod', 'ends', 'lasts', '--timeout=240s'])
    expect(await kubectl(['get', 'nodes', '-o', 'name'])).toBe('node/fairlead-kwok\n')
  })
})
