import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { Deployment } from '#sdk'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { until } from '../support/wait.ts'

const ROOT = join(import.meta.dirname, '../..')
const DEPLOY = join(ROOT, 'packages/scaffold/templates/http/deploy')
const WEBSITES = { group: 'example.com', version: 'v1', resource: 'websites' }

interface Website extends KubeObject {
  status?: { ready?: number; conditions?: { type: string; status: string; reason: string; message?: string }[] }
}

it('a program in Python owns what its Websites need, sees it, and says what is wrong with one', async () => {
  await using cluster = await borrowCluster({ nats: true })
  const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '' }
  const kubectl = await kubectlFor(cluster)
  await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  const program = join(ROOT, 'docs/examples/executables/website.py')
  await using served = startFairlead(['serve', 'website', '--exec', program, '--lines'], { PORT: '0' })
  const { port } = await served.logged(({ msg }) => msg === 'serving')
  expect((await command(['install'], env)).code).toBe(0)
  await kubectl(['apply', '-f', join(DEPLOY, 'crds.yaml'), '-f', join(DEPLOY, 'rbac.yaml')])
  const reconciler = await readFile(join(DEPLOY, 'reconciler.yaml'), 'utf8')
  await kubectl(['apply', '-f', '-'], reconciler.replace(/url: .*/, `url: http://127.0.0.1:${port}`))
  await kubectl(['wait', '--for=condition=Established', 'crd/websites.example.com'])
  await using _up = startFairlead(['up'], env)

  const create = (name: string, html: string) => {
    const object = { apiVersion: 'example.com/v1', kind: 'Website', metadata: { name }, spec: { html, replicas: 2 } }
    return kube.create(resourcePath(WEBSITES, 'default'), object)
  }
  const statusOf = async (name: string) => (await kube.get<Website>(resourcePath(WEBSITES, 'default', name))).status
  const conditionOf = async (name: string, wanted: string) =>
    (await statusOf(name))?.conditions?.find(({ type }) => type === wanted)

  await create('hello', '<h1>hi</h1>')
  await until(async () => (await conditionOf('hello', 'Ready'))?.reason === 'Starting')
  const deployment = resourcePath(Deployment, 'default', 'hello')
  const status = { status: { replicas: 2, readyReplicas: 2, availableReplicas: 2 } }
  await kube.patch(`${deployment}/status`, status, 'merge')
  await until(async () => (await conditionOf('hello', 'Ready'))?.status === 'True')
  expect(await statusOf('hello')).toMatchObject({ ready: 2 })

  await create('bad', '<script>')
  await until(async () => (await conditionOf('bad', 'Reconciled'))?.reason === 'ScriptInPage')
  expect(await conditionOf('bad', 'Reconciled')).toMatchObject({ message: expect.stringContaining('take it out') })
  expect(served.logs.find(({ msg }) => msg === 'deciding about hello')).toMatchObject({ key: 'default/hello' })
})
