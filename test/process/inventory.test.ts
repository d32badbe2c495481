import { access, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import { resourcePath } from '#kube'
import { createPlace, statusOfPlace } from '../cli/places.ts'
import { startSites } from '../e2e/clusters-world.ts'
import { command } from '../support/command.ts'
import { startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'

const MODULE = fileURLToPath(new URL('../cli/clusters-function.ts', import.meta.url))
const SECRETS = { group: '', version: 'v1', resource: 'secrets' }
const LABEL = 'cluster.x-k8s.io/cluster-name'

let sites: Awaited<ReturnType<typeof startSites<'hub' | 'spoke'>>>
beforeAll(async () => {
  sites = await startSites(['hub', 'spoke'])
})
afterAll(() => sites?.[Symbol.asyncDispose]())

/** Creates or changes a Secret as Cluster API has them. */
const put = (name: string, data: Record<string, string>) =>
  sites.site('hub').kube.apply(
    resourcePath(SECRETS, 'default', name),
    {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name, namespace: 'default', labels: { [LABEL]: name.replace(/-[a-z]+$/, '') } },
      type: 'cluster.x-k8s.io/secret',
      data: Object.fromEntries(Object.entries(data).map(([key, text]) => [key, Buffer.from(text).toString('base64')])),
    },
    { fieldManager: 'test' },
  )

/** The kubeconfig of the spoke with all its data in it, and with this user. */
async function inline(user?: object): Promise<string> {
  const config = parse(await readFile(sites.site('spoke').cluster.kubeconfig, 'utf8'))
  if (user !== undefined) config.users[0].user = user
  return stringify(config)
}

it('Secrets with kubeconfigs are clusters: one that comes is served, one that goes drains, and an inventory that is away changes nothing', async () => {
  const [hub, spoke] = [sites.site('hub'), sites.site('spoke')]
  const ran = join(sites.dir, 'ran')
  const exec = { apiVersion: 'client.authentication.k8s.io/v1', command: 'touch', args: [ran] }
  await put('far-kubeconfig', { value: await inline() })
  await put('program-kubeconfig', { value: await inline({ exec }) })
  await put('file-kubeconfig', { value: await inline({ tokenFile: '/var/run/secrets/token' }) })
  await put('a.name-that-is-longer-than-a-name-of-a-cluster-kubeconfig', { value: 'no kubeconfig' })
  // Cluster API has other Secrets with the same label.
  await put('far-ca', { 'tls.crt': '', 'tls.key': '' })
  await put('far-bootstrap', { value: '#cloud-config' })
  await sites.write({
    clusters: [],
    from: [{ secrets: { namespace: 'default', selector: LABEL, kubeconfig: hub.cluster.kubeconfig } }],
  })
  const env = { NATS_URL: sites.nats.url, FAIRLEAD_LEASE_SECONDS: '3' }
  await using up = startFairlead(['up', '--install', '-f', MODULE, '--clusters', sites.file], env)
  const states = (name: string) =>
    up.logs.flatMap(({ msg, cluster, state }) => (msg === 'cluster' && cluster === name ? [state] : []))
  const logged = (name: string, text: string) =>
    up.logged(({ msg, cluster, because }) => cluster === name && `${msg} ${String(because)}`.includes(text))
  await createPlaceWhenThere('one')
  expect(await statusOfPlace(spoke.kube, 'one')).toMatchObject({ cluster: 'far' })

  // What others have written runs no program here, and reads no file of this process.
  await logged('program', 'has exec, which runs a program')
  await logged('file', 'a file of this process')
  await up.logged(({ cluster, state }) => /^a-name-that-is--[0-9a-f]{16}$/.test(String(cluster)) && state === 'Refused')
  await expect(access(ran)).rejects.toThrow('ENOENT')
  expect(new Set(up.logs.flatMap(({ cluster }) => (cluster === undefined ? [] : [cluster]))).size).toBe(4)
  const { stdout } = await command(['queue', 'ls', '-o', 'json', '--cluster', 'far'], {
    ...env,
    FAIRLEAD_CLUSTERS: sites.file,
  })
  expect(JSON.parse(stdout)).toMatchObject([{ name: 'one', state: 'waiting' }])

  // A new text with the same content keeps everything open.
  await put('far-kubeconfig', { value: `# renewed\n${await inline()}` })
  hub.signal('SIGSTOP')
  await up.logged(({ msg, because }) => msg.startsWith('the clusters stay') && String(because).includes('default'))
  await createPlace(spoke.kube, 'two')
  expect(await statusOfPlace(spoke.kube, 'two')).toMatchObject({ cluster: 'far' })
  hub.signal('SIGCONT')
  await hub.kube.delete(resourcePath(SECRETS, 'default', 'program-kubeconfig'))
  await logged('program', 'not listed as before')
  expect(states('far')).toEqual(['Up'])

  await hub.kube.delete(resourcePath(SECRETS, 'default', 'far-kubeconfig'))
  await logged('far', 'not listed as before')
  await put('far-kubeconfig', { value: await inline() })
  await until(() => states('far').length === 2)
  await createPlace(spoke.kube, 'three')
  expect(await statusOfPlace(spoke.kube, 'three')).toMatchObject({ cluster: 'far' })

  /** The definition is installed when the cluster is reached. */
  function createPlaceWhenThere(name: string) {
    return until(() => createPlace(spoke.kube, name).then(() => true))
  }
})
