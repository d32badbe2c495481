import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import type { KubeObject } from '#contracts'
import { command } from '../support/command.ts'

const SDK = join(import.meta.dirname, '../../sdk/index.ts')
const FUNCTION = `import { ConfigMap, reconciler, resource, z } from ${JSON.stringify(SDK)}
const Shop = resource({
  group: 'shops.test', version: 'v1', kind: 'Shop', plural: 'shops',
  spec: z.object({ title: z.string().describe('What stands above.'), backup: z.object({ everyHours: z.int32() }).optional() }),
  status: z.object({ ready: z.int32() }),
})
const config = [{ name: 'token', secret: { name: 'provider', key: 'token' } }, { name: 'cloud', audience: 'cloud.test' }]
const external = { config, read: () => null, perform: () => undefined }
export const shop = reconciler({ name: 'shop', for: Shop, owns: [ConfigMap], external, reconcile: () => undefined })
`
const PACKAGE = {
  name: '@me/shops',
  version: '1.2.0',
  description: 'Shops on Kubernetes.',
  license: 'Apache-2.0',
  author: 'Ada <ada@example.com> (https://example.com)',
  repository: 'git+https://example.com/shops.git',
  bugs: { url: 'https://example.com/shops/issues' },
}
const EXAMPLE = { apiVersion: 'shops.test/v1', kind: 'Shop', metadata: { name: 'hello' }, spec: { title: 'Hello' } }

let dir: string
let bundle: string
let files: Map<string, string>
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-bundle-'))
  bundle = join(dir, 'bundle')
  await mkdir(join(dir, 'examples'))
  await writeFile(join(dir, 'shop.ts'), FUNCTION)
  await writeFile(join(dir, 'package.json'), JSON.stringify(PACKAGE))
  await writeFile(join(dir, 'examples/shop.yaml'), JSON.stringify(EXAMPLE))
  await writeFile(join(dir, 'icon.svg'), '<svg xmlns="http://www.w3.org/2000/svg"/>')
  const { code, stderr } = await generate('--icon', join(dir, 'icon.svg'), '--replaces', '1.1.0')
  if (code !== 0) throw new Error(stderr)
  const paths = (await readdir(bundle, { recursive: true, withFileTypes: true })).filter((one) => one.isFile())
  const read = paths.map(async ({ parentPath, name }) => {
    const path = join(parentPath, name)
    return [path.slice(bundle.length + 1), await readFile(path, 'utf8')] as const
  })
  files = new Map(await Promise.all(read))
})
afterAll(() => rm(dir, { recursive: true }))

const IMAGE = `registry.test/shops@sha256:${'a'.repeat(64)}`
const given = () => ({
  function: join(dir, 'shop.ts'),
  to: bundle,
  image: IMAGE,
  module: 'src/index.ts',
  package: join(dir, 'package.json'),
  examples: join(dir, 'examples'),
})
function generate(...more: string[]) {
  const options = Object.entries(given()).flatMap(([name, value]) => [`--${name}`, value])
  return command(['generate', 'bundle', ...options, ...more], { SOURCE_DATE_EPOCH: '1700000000' })
}

interface Container {
  args: string[]
  resources: { requests: object }
  securityContext: object
}
interface Owned {
  name: string
  version: string
  kind: string
  description: string
  resources: object[]
  specDescriptors: { path: string }[]
  statusDescriptors: { path: string }[]
}
interface Csv extends KubeObject {
  metadata: { name: string; annotations: Record<string, string>; labels: Record<string, string> }
  spec: {
    minKubeVersion: string
    description: string
    installModes: { type: string; supported: boolean }[]
    customresourcedefinitions: { owned: [Owned] }
    provider: object
    maintainers: object[]
    links: { name: string; url: string }[]
    icon: object[]
    nativeAPIs: object[]
    install: {
      spec: {
        deployments: [{ name: string; spec: { template: { spec: { containers: [Container] } } } }]
        clusterPermissions: [{ serviceAccountName: string; rules: object[] }]
      }
    }
  }
}
const csv = () => parse(files.get('manifests/me-shops.clusterserviceversion.yaml') ?? '') as Csv
const annotations = () =>
  (parse(files.get('metadata/annotations.yaml') ?? '') as { annotations: Record<string, string> }).annotations
const manifests = () =>
  [...files]
    .filter(([path]) => path.startsWith('manifests/'))
    .flatMap(([, text]) => parseAllDocuments(text).map((one) => one.toJS() as KubeObject))

/**
 * The rules of `operator-sdk bundle validate --select-optional suite=operatorframework` (operator-sdk 1.42), as
 * pkg/validation/internal of github.com/operator-framework/api has them. Named by the validator.
 */
describe('a bundle holds the rules of operator-sdk bundle validate', () => {
  it('annotations: what OLM reads of the image is in metadata/annotations.yaml', () => {
    const key = (name: string) => `operators.operatorframework.io.bundle.${name}`
    expect(annotations()).toEqual({
      [key('mediatype.v1')]: 'registry+v1',
      [key('manifests.v1')]: 'manifests/',
      [key('metadata.v1')]: 'metadata/',
      [key('package.v1')]: 'me-shops',
      [key('channels.v1')]: 'stable',
      [key('channel.default.v1')]: 'stable',
    })
    for (const [name, value] of Object.entries(annotations()))
      expect(files.get('bundle.Dockerfile')).toContain(`LABEL ${name}=${value}\n`)
  })

  it('csv: name, version, replaces and minKubeVersion are well formed; one install mode is supported', () => {
    const { metadata, spec } = csv()
    expect(metadata.name).toBe('me-shops.v1.2.0')
    expect(spec).toMatchObject({ version: '1.2.0', replaces: 'me-shops.v1.1.0' })
    expect(metadata.name.length).toBeLessThanOrEqual(63)
    expect(spec.minKubeVersion).toMatch(/^\d+\.\d+\.\d+$/)
    expect(spec.installModes).toHaveLength(4)
    expect(spec.installModes.filter(({ supported }) => supported)).toEqual([{ type: 'AllNamespaces', supported: true }])
  })

  it('csv: each owned kind has an example, and each example is of an owned kind', () => {
    const { metadata, spec } = csv()
    const examples = JSON.parse(metadata.annotations['alm-examples'] ?? '') as KubeObject[]
    expect(examples).toEqual([EXAMPLE])
    const { owned } = spec.customresourcedefinitions
    expect(owned.map(({ name, version, kind }) => `${name.replace(/^[^.]+\./, '')}/${version} ${kind}`)).toEqual(
      examples.map(({ apiVersion, kind }) => `${apiVersion} ${kind}`),
    )
  })

  it('bundle: owned definitions are in it, all versions; no service account is; it is small', () => {
    const crds = manifests().filter(({ kind }) => kind === 'CustomResourceDefinition')
    expect(crds.map(({ metadata }) => metadata.name)).toEqual(
      csv().spec.customresourcedefinitions.owned.map(({ name }) => name),
    )
    expect(manifests().map(({ kind }) => kind)).not.toContain('ServiceAccount')
    expect([...files.values()].join('').length).toBeLessThan(2 ** 20)
    for (const { metadata } of manifests().filter(({ kind }) => kind !== 'ClusterServiceVersion'))
      expect(metadata).not.toHaveProperty('namespace')
  })

  it('operatorhub: provider, maintainers, links, icon, capabilities and categories are those that catalogs take', () => {
    const { metadata, spec } = csv()
    expect(spec.provider).toEqual({ name: 'Ada', url: 'https://example.com' })
    expect(spec.maintainers).toEqual([{ name: 'Ada', email: 'ada@example.com' }])
    expect(spec.links).toContainEqual({ name: 'Source', url: 'https://example.com/shops' })
    for (const { name, url } of spec.links) expect([name !== '', URL.canParse(url)]).toEqual([true, true])
    expect(spec.icon).toEqual([{ base64data: expect.any(String), mediatype: 'image/svg+xml' }])
    expect(metadata.annotations).toMatchObject({
      capabilities: 'Basic Install',
      categories: 'Integration & Delivery',
      containerImage: IMAGE,
      createdAt: '2023-11-14T22:13:20Z',
      description: 'Shops on Kubernetes.',
      repository: 'https://example.com/shops',
      support: 'https://example.com/shops/issues',
    })
  })

  it('good practices: requests of each container, descriptions of owned kinds, channels and name by convention', () => {
    const { metadata, spec } = csv()
    const { deployments, clusterPermissions } = spec.install.spec
    for (const { spec: deployment } of deployments)
      for (const { resources } of deployment.template.spec.containers)
        expect(resources.requests).toMatchObject({ cpu: expect.any(String), memory: expect.any(String) })
    for (const { description } of spec.customresourcedefinitions.owned) expect(description).toMatch(/\S/)
    expect(annotations()['operators.operatorframework.io.bundle.channels.v1']).toMatch(/^(candidate|fast|stable)/)
    expect(metadata.name.split('.v')).toHaveLength(2)
    expect(JSON.stringify(clusterPermissions)).not.toContain('customresourcedefinitions')
  })

  it('multiarch: platforms of the image are labels, and where its pods may be', () => {
    expect(csv().metadata.labels).toMatchObject({
      'operatorframework.io/os.linux': 'supported',
      'operatorframework.io/arch.arm64': 'supported',
    })
    const [{ spec: deployment }] = csv().spec.install.spec.deployments
    expect(JSON.stringify(deployment.template.spec)).toContain(
      '{"key":"kubernetes.io/arch","operator":"In","values":["amd64","arm64"]}',
    )
  })
})

describe('a bundle', () => {
  it('runs the function over HTTP as the restricted standard allows, and calls it there with the rights of its account', () => {
    const { spec } = csv()
    const [{ name, spec: deployment }] = spec.install.spec.deployments
    const [container] = deployment.template.spec.containers
    expect(container).toMatchObject({ image: IMAGE, args: ['serve', '--function', 'src/index.ts', 'shop'] })
    expect(container.securityContext).toMatchObject({ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true })
    expect(deployment.template.spec).toMatchObject({ automountServiceAccountToken: false })
    const reconciler = parse(files.get('reconcilers.yaml') ?? '') as KubeObject
    const account = { name: 'fairlead-shop', namespace: 'fairlead-functions' }
    expect(reconciler).toMatchObject({
      kind: 'Reconciler',
      spec: { invoke: { http: { url: `http://${name}.fairlead-functions.svc` } }, serviceAccount: account },
    })
    const [{ serviceAccountName, rules }] = spec.install.spec.clusterPermissions
    expect(serviceAccountName).toBe(account.name)
    expect(rules).toContainEqual({ apiGroups: ['shops.test'], resources: ['shops'], verbs: ['get'] })
    const titles = manifests().map(({ kind, metadata }) => `${kind} ${metadata.name}`)
    expect(titles).toEqual(
      expect.arrayContaining([
        `Service ${name}`,
        'ClusterRole fairlead-shop-watch',
        'ClusterRole fairlead-shop-impersonate',
        'RoleBinding fairlead-shop-impersonate',
      ]),
    )
  })

  it('gives the pod the configuration of the function, and nobody a right to read it', () => {
    const [{ spec: deployment }] = csv().spec.install.spec.deployments
    expect(deployment.template.spec).toMatchObject({
      serviceAccountName: 'fairlead-shop',
      automountServiceAccountToken: false,
      volumes: [
        {
          projected: {
            sources: [
              { secret: { name: 'provider', optional: true, items: [{ key: 'token', path: 'token' }] } },
              { serviceAccountToken: { audience: 'cloud.test', path: 'cloud' } },
            ],
          },
        },
      ],
      containers: [{ volumeMounts: [{ mountPath: '/var/run/fairlead/config', readOnly: true }] }],
    })
    expect(manifests().map(({ kind }) => kind)).not.toContain('Role')
  })

  it('names the platform as what it needs, for OLM and for people', () => {
    const { metadata, spec } = csv()
    expect(spec.nativeAPIs).toEqual([{ group: 'fairlead.dev', version: 'v1alpha1', kind: 'Reconciler' }])
    for (const text of [spec.description, metadata.annotations['artifacthub.io/install']])
      expect(text).toContain('Fairlead has to run on the cluster')
  })

  it('has Reconcilers of the shard that the command has', async () => {
    const to = join(dir, 'sharded')
    expect(await generate('--to', to, '--shard', 'b')).toMatchObject({ code: 0 })
    const one = files.get('reconcilers.yaml') ?? ''
    expect(one).toContain('  name: shop\n')
    const labels = '  labels:\n    fairlead.dev/shard: b\n'
    expect(await readFile(join(to, 'reconcilers.yaml'), 'utf8')).toBe(one.replace('  name: shop\n', `$&${labels}`))
  })

  it('describes fields by their paths', () => {
    const [{ specDescriptors, statusDescriptors, resources }] = csv().spec.customresourcedefinitions.owned
    expect(specDescriptors).toEqual([
      { path: 'title', displayName: 'Title', description: 'What stands above.' },
      { path: 'backup.everyHours', displayName: 'Every Hours' },
    ])
    expect(statusDescriptors.map(({ path }) => path)).toContain('conditions')
    expect(resources).toContainEqual({ kind: 'ConfigMap', name: '', version: 'v1' })
  })

  it('is an image without a base, by fairlead image', async () => {
    const output = join(dir, 'bundle.tar')
    const { stdout, code } = await command(['image', bundle, '--bundle', '--output', output])
    expect({ stdout, code }).toEqual({ stdout: expect.stringMatching(/^sha256:[0-9a-f]{64}\n$/), code: 0 })
    const run = promisify(execFile)
    const blob = async (digest: string) =>
      (await run('tar', ['-xOf', output, `blobs/${digest.replace(':', '/')}`], { encoding: 'buffer' })).stdout
    const manifest = JSON.parse((await blob(stdout.trim())).toString()) as Record<'config', { digest: string }> & {
      layers: { digest: string }[]
    }
    const { config } = JSON.parse((await blob(manifest.config.digest)).toString()) as { config: { Labels: object } }
    expect(config.Labels).toEqual(annotations())
    const layer = join(dir, 'layer.tgz')
    await writeFile(layer, await blob(manifest.layers[0]?.digest ?? ''))
    const { stdout: paths } = await run('tar', ['-tzf', layer])
    expect(paths.split('\n')).toEqual(
      expect.arrayContaining(['manifests/me-shops.clusterserviceversion.yaml', 'metadata/annotations.yaml']),
    )
  })

  it.each([
    ['--icon', 'icon.txt', 'icon.txt cannot be read'],
    ['--package', 'none.json', 'none.json does not exist'],
  ])('%s %s is refused in one line', async (option, value, message) => {
    const { code, stderr } = await generate(option, value)
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(message) })
  })

  it('says what package.json lacks, and which kind has no example', async () => {
    const bare = join(dir, 'bare.json')
    await writeFile(bare, '{"name":"shops"}')
    expect((await generate('--package', bare)).stderr).toContain(
      `${bare} lacks, for a bundle: version (such as 1.2.0), description, author`,
    )
    const { examples: _, ...others } = given()
    const options = Object.entries(others).flatMap(([name, value]) => [`--${name}`, value])
    const none = await command(['generate', 'bundle', ...options])
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('there is no example of Shop') })
  })
})
