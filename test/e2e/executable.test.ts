import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { ConfigMap, Deployment } from '#sdk'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { until } from '../support/wait.ts'

const ROOT = join(import.meta.dirname, '../..')
const DEPLOY = join(ROOT, 'packages/scaffold/templates/http/deploy')
const WEBSITES = { group: 'example.com', version: 'v1', resource: 'websites' }

interface Website extends KubeObject {
  status?: { ready?: number; conditions?: { type: string; status: string; reason: string; message?: string }[] }
}

interface Operating {
  kube: ReturnType<typeof createKubeClient>
  served: FairleadProcess
}

/** Runs Websites on a cluster, as the pages say: `serve` with these arguments, a Reconciler, and `up`. */
async function operating(
  args: string[],
  reconcilerOf: (text: string) => string,
  holds: (on: Operating) => Promise<void>,
): Promise<void> {
  await using cluster = await borrowCluster({ nats: true })
  const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '' }
  const kubectl = await kubectlFor(cluster)
  await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  await using served = startFairlead(['serve', 'website', ...args], { PORT: '0' })
  const { port } = await served.logged(({ msg }) => msg === 'serving')
  expect((await command(['install'], env)).code).toBe(0)
  await kubectl(['apply', '-f', join(DEPLOY, 'crds.yaml'), '-f', join(DEPLOY, 'rbac.yaml')])
  const reconciler = reconcilerOf(await readFile(join(DEPLOY, 'reconciler.yaml'), 'utf8'))
  await kubectl(['apply', '-f', '-'], reconciler.replace(/url: .*/, `url: http://127.0.0.1:${port}`))
  await kubectl(['wait', '--for=condition=Established', 'crd/websites.example.com'])
  await using _up = startFairlead(['up'], env)
  await holds({ kube, served })
}

const create = (kube: Operating['kube'], name: string, html: string) => {
  const object = { apiVersion: 'example.com/v1', kind: 'Website', metadata: { name }, spec: { html, replicas: 2 } }
  return kube.create(resourcePath(WEBSITES, 'default'), object)
}
const websiteOf = (kube: Operating['kube'], name: string) => kube.get<Website>(resourcePath(WEBSITES, 'default', name))

it('a program in Python owns what its Websites need, sees it, and says what is wrong with one', () =>
  operating(
    ['--exec', join(ROOT, 'docs/examples/executables/website.py'), '--lines'],
    (text) => text,
    async ({ kube, served }) => {
      const conditionOf = async (name: string, wanted: string) =>
        (await websiteOf(kube, name)).status?.conditions?.find(({ type }) => type === wanted)

      await create(kube, 'hello', '<h1>hi</h1>')
      await until(async () => (await conditionOf('hello', 'Ready'))?.reason === 'Starting')
      const deployment = resourcePath(Deployment, 'default', 'hello')
      const status = { status: { replicas: 2, readyReplicas: 2, availableReplicas: 2 } }
      await kube.patch(`${deployment}/status`, status, 'merge')
      await until(async () => (await conditionOf('hello', 'Ready'))?.status === 'True')
      expect((await websiteOf(kube, 'hello')).status).toMatchObject({ ready: 2 })

      await create(kube, 'bad', '<script>')
      await until(async () => (await conditionOf('bad', 'Reconciled'))?.reason === 'ScriptInPage')
      expect(await conditionOf('bad', 'Reconciled')).toMatchObject({ message: expect.stringContaining('take it out') })
      expect(served.logs.find(({ msg }) => msg === 'deciding about hello')).toMatchObject({ key: 'default/hello' })
    },
  ))

it('a hook of shell-operator creates what its Websites need, and runs when an object of its snapshot changes', async () => {
  const page = await readFile(join(ROOT, 'docs/adapters/shell-operator.md'), 'utf8')
  const [related = ''] = /^ {6}related:\n(?: {8}.*\n)+/m.exec(page) ?? []
  await operating(
    ['--hook', join(ROOT, 'docs/examples/executables/website-hook.sh')],
    (text) => text.replace('  invoke:\n', `${related.replaceAll(/^ {4}/gm, '')}  invoke:\n`),
    async ({ kube, served }) => {
      const themes = resourcePath(ConfigMap, 'default')
      const theme = (header: string) => ({
        ...ConfigMap.of({ metadata: { name: 'theme', labels: { app: 'theme' } } }),
        data: { header },
      })
      await kube.create(themes, theme('<b>'))
      await create(kube, 'hello', 'hi')
      const pageOf = async () =>
        (await kube.get<KubeObject & { data: { 'index.html': string } }>(resourcePath(ConfigMap, 'default', 'hello')))
          .data['index.html']
      await until(async () => (await websiteOf(kube, 'hello')).status?.ready === 1)
      expect(await pageOf()).toBe('<b>hi')
      await kube.patch(`${themes}/theme`, { data: { header: '<i>' } }, 'merge')
      await until(async () => (await pageOf()) === '<i>hi')
      await kube.delete(resourcePath(ConfigMap, 'default', 'hello'))
      await until(async () => (await pageOf().catch(() => '')) === '<i>hi')
      expect(served.logs.find(({ msg }) => msg === 'deciding about hello')).toMatchObject({ key: 'default/hello' })
    },
  )
})
