import { execFile } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { builtins } from '#functions'
import { functionRbac, platformRbac, reconcilerCrd } from '#install'
import { ensureBinaries, silentProgress } from '#lab'
import { readConfig } from '#process/config'
import { definitionsOf, manifest } from '#sdk'
import { natsCertificates } from '../../cli/install/certificates.ts'
import { command } from '../support/command.ts'
import { CHART, FUNCTIONS_CHART, type Helm, helmIn, isHook, objectsOf, SYSTEM, titleOf } from '../support/helm.ts'

const DEPLOY = join(import.meta.dirname, '../../deploy')
const HELM_WITHIN_MS = 600_000

let dir: string
let helm: Helm
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-chart-'))
  helm = await helmIn(dir)
}, HELM_WITHIN_MS)
afterAll(() => rm(dir, { recursive: true, force: true }))

const rendered = async (chart: string, ...args: string[]) =>
  objectsOf(await helm(['template', 'fairlead', chart, ...SYSTEM, ...args]))

async function kustomized(folder: string): Promise<KubeObject[]> {
  const kubectl = (await ensureBinaries(['kubectl'], silentProgress))('kubectl')
  const { stdout } = await promisify(execFile)(kubectl, ['kustomize', folder])
  return objectsOf(stdout)
}

/** What a kustomization of a user has. */
async function kustomizedTogether(resources: string[], components: string[]): Promise<KubeObject[]> {
  const own = await mkdtemp(join(dir, 'own-'))
  const there = (folders: string[]) => folders.map((folder) => relative(own, join(DEPLOY, folder)))
  const kustomization = { resources: there(resources), components: there(components) }
  await writeFile(join(own, 'kustomization.yaml'), JSON.stringify(kustomization))
  return kustomized(own)
}

interface PodSpec {
  volumes: object[]
  containers: { env: object[]; volumeMounts: object[] }[]
}

const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T

const OWN = ['checksum/config', 'helm.sh/resource-policy']

/**
 * Keys objects by kind and name. Leaves out Helm's own fields, and the annotation that restarts servers after a change
 * of the configuration.
 */
function byTitle(objects: readonly KubeObject[]): Record<string, unknown> {
  const text = JSON.stringify(objects).replaceAll(/"fairlead-(nats|small)-[a-z0-9]{10}"/g, '"fairlead-$1"')
  const all = JSON.parse(text, (key, value: Record<string, string>) => {
    if (key !== 'annotations') return value
    const kept = Object.entries(value).filter(([name]) => !OWN.includes(name))
    return kept.length === 0 ? undefined : Object.fromEntries(kept)
  }) as KubeObject[]
  return Object.fromEntries(all.map((one) => [titleOf(one), one]))
}

describe('the chart of Fairlead', () => {
  it.each([
    ['fairlead', []],
    ['fairlead-ha', ['--set', 'nats.replicas=3']],
    ['fairlead-small', ['--set', 'small=true']],
    ['fairlead-small/move', ['--set', 'small=move,nats.replicas=3']],
  ])('has the objects of deploy/%s, and those that install applies', async (folder, args) => {
    const [, ...accounts] = platformRbac()
    const made = (await rendered(CHART, ...args)).filter((one) => !isHook(one))
    const wanted = [...(await kustomized(join(DEPLOY, folder))), ...plain(accounts), plain(reconcilerCrd())]
    expect(byTitle(made)).toEqual(byTitle(wanted as KubeObject[]))
  })

  it.each([
    [[], []],
    [['--set', 'console.writes=true'], ['console/writes']],
  ])('has no console unless it is enabled, and then the objects of deploy/console (%j)', async (args, components) => {
    const enabled = await rendered(CHART, '--set', 'console.enabled=true', ...args)
    const platform = byTitle(await rendered(CHART, ...args))
    const made = enabled.filter((one) => !(titleOf(one) in platform))
    const wanted = await kustomizedTogether(['console'], components)
    expect(byTitle(made)).toEqual(byTitle(wanted))
    expect(Object.keys(platform).filter((title) => title.includes('console'))).toEqual([])
  })

  it('gives the console the names by which it is reached, and the audiences of tokens', async () => {
    const names = 'console.hosts={console.example.com,other.example.com},console.audiences={fairlead-console}'
    const objects = await rendered(CHART, '--set', `console.enabled=true,${names}`)
    expect(JSON.stringify(objects.find((one) => titleOf(one) === 'Deployment fairlead-console'))).toContain(
      '{"name":"FAIRLEAD_CONSOLE_HOSTS","value":"console.example.com,other.example.com"},' +
        '{"name":"FAIRLEAD_CONSOLE_AUDIENCES","value":"fairlead-console"}',
    )
  })

  it('mounts the file of clusters, and the certificates of their users of NATS, where bridges and dispatchers read them', async () => {
    const objects = byTitle(await rendered(CHART, '--set', 'clusters.secret=mine,clusters.users={east}'))
    const plainly = byTitle(await rendered(CHART))
    for (const part of ['bridge', 'dispatcher']) {
      const title = `Deployment fairlead-${part}`
      const { volumes, containers } = (objects[title] as { spec: { template: { spec: PodSpec } } }).spec.template.spec
      expect(volumes.at(-1)).toMatchObject({
        projected: {
          sources: [
            { secret: { name: 'mine' } },
            { secret: { name: `fairlead-nats-${part}.east`, items: [{ path: 'nats/east/tls.crt' }, {}] } },
          ],
        },
      })
      expect(containers[0]?.volumeMounts.at(-1)).toEqual({ name: 'clusters', mountPath: '/etc/fairlead' })
      expect(containers[0]?.env).toContainEqual({ name: 'FAIRLEAD_CLUSTERS', value: '/etc/fairlead/clusters.yaml' })
      expect(JSON.stringify(plainly[title])).not.toContain('clusters')
    }
  })

  it('gives what differs between clusters to all pods that it concerns', async () => {
    const values = {
      image: { repository: 'r.example.com/f', digest: `sha256:${'a'.repeat(64)}`, pullPolicy: 'Always' },
      imagePullSecrets: [{ name: 'pull' }],
      bridge: { nodeSelector: { a: 'b' }, env: [{ name: 'LOG_LEVEL', value: 'debug' }] },
      dispatcher: { functions: ['src/index.ts'], tolerations: [{ operator: 'Exists' }], affinity: { podAffinity: {} } },
      nats: { enabled: false, url: 'tls://nats.example.com:4222', eventsMaxBytes: '', replicas: 3 },
      tls: { source: 'Secret' },
      monitoring: { podMonitor: { enabled: true }, prometheusRule: { enabled: true } },
      networkPolicy: { enabled: false },
    }
    await writeFile(join(dir, 'values.yaml'), JSON.stringify(values))
    const objects = await rendered(CHART, '-f', join(dir, 'values.yaml'))
    const titles = objects.map(titleOf)
    expect(titles).toEqual(expect.arrayContaining(['PodMonitor fairlead', 'PrometheusRule fairlead']))
    expect(titles.filter((title) => /^(StatefulSet|NetworkPolicy|Job|ConfigMap)/.test(title))).toEqual([])
    const podOf = (name: string) =>
      objects.find((one) => titleOf(one) === `Deployment ${name}`) as KubeObject & {
        spec: { template: { spec: { containers: { image: string; args: string[]; env: object[] }[] } } }
      }
    const [bridge, dispatcher] = ['bridge', 'dispatcher'].map((part) => podOf(`fairlead-${part}`).spec.template.spec)
    expect(bridge).toMatchObject({ nodeSelector: { a: 'b' }, imagePullSecrets: [{ name: 'pull' }] })
    expect(bridge?.containers[0]).toMatchObject({
      image: `r.example.com/f@sha256:${'a'.repeat(64)}`,
      imagePullPolicy: 'Always',
    })
    expect(bridge?.containers[0]?.env).toEqual(
      expect.arrayContaining([
        { name: 'NATS_URL', value: 'tls://nats.example.com:4222' },
        { name: 'FAIRLEAD_REPLICAS', value: '3' },
        { name: 'LOG_LEVEL', value: 'debug' },
      ]),
    )
    expect(JSON.stringify(bridge)).not.toContain('EVENTS_MAX_BYTES')
    expect(dispatcher).toMatchObject({ tolerations: [{ operator: 'Exists' }], affinity: { podAffinity: {} } })
    expect(dispatcher?.containers[0]?.args.slice(-2)).toEqual(['-f', 'src/index.ts'])
  })

  it.each([
    ['tls://nats.example.com', [], [4222], undefined],
    ['tls://a.example.com:4333,tls://b.example.com:4333/,nats://u:p@[fd00::1]:5222', [], [4333, 5222], undefined],
    [
      'nats://[fd00::1]',
      ['10.1.2.0/24', 'fd00::/8'],
      [4222],
      [{ ipBlock: { cidr: '10.1.2.0/24' } }, { ipBlock: { cidr: 'fd00::/8' } }],
    ],
  ])('lets its processes reach another NATS at %s, in the networks %j', async (url, natsCidrs, ports, to) => {
    const values = { nats: { enabled: false, url }, tls: { source: 'Secret' }, networkPolicy: { natsCidrs } }
    await writeFile(join(dir, 'another.yaml'), JSON.stringify(values))
    const objects = await rendered(CHART, '-f', join(dir, 'another.yaml'))
    const policy = objects.find((one) => titleOf(one) === 'NetworkPolicy fairlead-processes')
    expect(policy).toMatchObject({
      spec: {
        podSelector: { matchExpressions: [{ values: ['bridge', 'dispatcher', 'console'] }] },
        egress: expect.arrayContaining([
          { ports: ports.map((port) => ({ protocol: 'TCP', port })), ...(to && { to }) },
        ]),
      },
    })
  })

  it.each([
    ['2Gi', '1843MiB'],
    ['1536Mi', '1382MiB'],
    ['2.5G', '2145MiB'],
    [1073741824, '921MiB'],
    [null, undefined],
  ])('derives GOMEMLIMIT of NATS from the memory limit %j', async (memory, limit) => {
    await writeFile(join(dir, 'memory.yaml'), JSON.stringify({ nats: { resources: { limits: { memory } } } }))
    const objects = await rendered(CHART, '-f', join(dir, 'memory.yaml'))
    const servers = JSON.stringify(objects.find(({ kind }) => kind === 'StatefulSet'))
    expect(servers.match(/"name":"GOMEMLIMIT","value":"([^"]*)"/)?.[1]).toBe(limit)
  })

  it('has only bridges and dispatchers for a shard, beside the release without one', async () => {
    const without = await rendered(CHART)
    const shard = await rendered(CHART, '--set', 'shard=b')
    expect(shard.map(titleOf).sort()).toEqual(['Deployment fairlead-bridge-b', 'Deployment fairlead-dispatcher-b'])
    for (const one of shard) {
      const other = without.find((they) => `${titleOf(they)}-b` === titleOf(one))
      const text = JSON.stringify(one)
      expect(text).toContain('{"name":"FAIRLEAD_SHARD","value":"b"}')
      const plainly = text
        .replaceAll(',"fairlead.dev/shard":"b"', '')
        .replace(/,{"name":"FAIRLEAD_SHARD","value":"b"}/, '')
        .replace(/"name":"fairlead-(\w+)-b"/, '"name":"fairlead-$1"')
      expect(JSON.parse(plainly)).toEqual(other)
      expect(text.match(/"fairlead.dev\/shard":"b"/g)).toHaveLength(4)
    }
    await expect(rendered(CHART, '--set', 'shard=B')).rejects.toThrow('shard')
  })

  it('gives the pod of a small installation the values of dispatchers and of NATS, and needs no certificates', async () => {
    const values = {
      small: true,
      image: { repository: 'r.example.com/f', digest: `sha256:${'a'.repeat(64)}` },
      dispatcher: {
        functions: ['src/index.ts'],
        env: [{ name: 'LOG_LEVEL', value: 'debug' }],
        nodeSelector: { a: 'b' },
      },
      nats: {
        storage: { maxFile: '1GiB', size: '2Gi', className: 'fast' },
        resources: { limits: { memory: '512Mi' } },
        eventsMaxBytes: '512Mi',
      },
      tls: { source: 'CertManager' },
    }
    await writeFile(join(dir, 'small.yaml'), JSON.stringify(values))
    const objects = await rendered(CHART, '-f', join(dir, 'small.yaml'))
    expect(objects.map(({ kind }) => kind)).not.toEqual(expect.arrayContaining(['Certificate']))
    expect((await rendered(CHART, '--set', 'small=true')).filter(isHook)).toEqual([])
    const pods = JSON.stringify(objects.find(({ kind }) => kind === 'StatefulSet'))
    for (const text of [
      `"image":"r.example.com/f@sha256:${'a'.repeat(64)}","args":["up","--listen",":8080","--wait-seconds","50","-f","src/index.ts"]`,
      '{"name":"FAIRLEAD_EVENTS_MAX_BYTES","value":"512Mi"},{"name":"FAIRLEAD_STORAGE_MAX_BYTES","value":"1Gi"},{"name":"LOG_LEVEL","value":"debug"}',
      '"name":"GOMEMLIMIT","value":"460MiB"',
      '"nodeSelector":{"a":"b"}',
      '"storageClassName":"fast"',
      '"storage":"2Gi"',
    ])
      expect(pods).toContain(text)
    expect(JSON.stringify(objects.find(({ kind }) => kind === 'ConfigMap'))).toContain('max_file: 1GiB')
  })

  it('is not small for a release of an earlier chart, whose values lack it', async () => {
    expect(await rendered(CHART, '--set', 'small=null')).toEqual(await rendered(CHART))
  })

  it('has the shard by kustomize as docs/deploy/shards.md shows it', async () => {
    const page = await readFile(join(DEPLOY, '../docs/deploy/shards.md'), 'utf8')
    const [, yaml = ''] = /```yaml\n(apiVersion: kustomize[^`]*nameSuffix[^`]*)```/.exec(page) ?? []
    const own = await mkdtemp(join(dir, 'shard-'))
    const there = relative(own, DEPLOY)
    await writeFile(join(own, 'kustomization.yaml'), yaml.replace('RELATIVE-PATH-OR-GIT-URL/deploy', there))
    const made = byTitle(await kustomized(own))
    expect(made).toEqual(byTitle(await rendered(CHART, '--set', 'shard=b,nats.eventsMaxBytes=')))
  })

  it('gives dispatchers the adapters that are selected, and no other part', async () => {
    const made = byTitle(await rendered(CHART, '--set', 'dispatcher.adapters={metacontroller}'))
    const changed = Object.keys(made).filter((title) => JSON.stringify(made[title]).includes('metacontroller'))
    expect(changed).toEqual([expect.stringContaining('fairlead-dispatcher')])
    expect(JSON.stringify(made[changed[0]!])).toContain('"--adapter","metacontroller"')
  })

  it('gives the team of docs/deploy/teams.md what it may do, and dispatchers of its own', async () => {
    const page = await readFile(join(DEPLOY, '../docs/deploy/teams.md'), 'utf8')
    const [, yaml = ''] = /```yaml\n(teams:[^`]*)```/.exec(page) ?? []
    const shown = yaml.replace('REGISTRY', 'r.test').replace('DIGEST', 'b'.repeat(64))
    await writeFile(join(dir, 'teams.yaml'), shown)
    const others = ['--set', `image.digest=sha256:${'a'.repeat(64)},dispatcher.builtin={at}`]
    const without = byTitle(await rendered(CHART, ...others))
    const all = JSON.stringify(await rendered(CHART, ...others, '-f', join(dir, 'teams.yaml')))
    const rates: string[] = []
    // All dispatchers keep the rate of the team, since each of them may run its functions.
    const made: KubeObject[] = JSON.parse(
      all.replaceAll(/,{"name":"FAIRLEAD_RUN_RATES","value":("(?:[^"\\]|\\.)*")}/g, (_, value) => {
        rates.push(JSON.parse(value))
        return ''
      }),
    )
    const { FAIRLEAD_RUN_RATES: kept } = readConfig({ FAIRLEAD_RUN_RATES: rates[0] })
    expect(rates).toEqual([rates[0], rates[0]])
    expect(kept).toEqual([{ name: 'team/shop', limits: ['shop', 'shop-mail'], perSecond: 20, burst: 40 }])
    const ofTeam = made.filter((one) => !(titleOf(one) in without))
    expect(byTitle(made)).toMatchObject(without)
    expect(new Set(ofTeam.map(({ kind, metadata: { name, namespace } }) => `${kind} ${name} ${namespace}`))).toEqual(
      new Set([
        ...['install', 'console'].flatMap((part) => [
          `ClusterRole fairlead:team-shop:${part} undefined`,
          `ClusterRole fairlead:team-shop:${part}-in-namespace undefined`,
          `ClusterRoleBinding fairlead:team-shop:${part} undefined`,
          `RoleBinding fairlead:team-shop:${part}-in-namespace shop`,
          `RoleBinding fairlead:team-shop:${part}-in-namespace shop-test`,
        ]),
        ...['watch', 'inspect'].map((part) => `ClusterRole fairlead:team-shop:${part} undefined`),
        ...['reconcilers', 'definitions'].flatMap((part) => [
          `ValidatingAdmissionPolicy fairlead-team-shop-${part} undefined`,
          `ValidatingAdmissionPolicyBinding fairlead-team-shop-${part} undefined`,
        ]),
        'ResourceQuota fairlead-team shop',
        'ResourceQuota fairlead-team shop-test',
        'Deployment fairlead-dispatcher-team-shop fairlead-system',
      ]),
    )
    const dispatcher = JSON.stringify(ofTeam.find(({ kind }) => kind === 'Deployment'))
    expect(dispatcher.match(/"fairlead.dev\/team":"shop"/g)).toHaveLength(4)
    expect(dispatcher).toContain(`"image":"r.test/shop@sha256:${'b'.repeat(64)}"`)
    expect(dispatcher).toContain('"--wait-seconds","50","-f","src/index.ts"]')
    const shard = await rendered(CHART, '-f', join(dir, 'teams.yaml'), '--set', 'shard=b')
    expect(shard.map(titleOf).sort()).toEqual(['Deployment fairlead-bridge-b', 'Deployment fairlead-dispatcher-b'])
  })

  it.each<[string, object[], string]>([
    ['a name of another one', [{ reconcilers: ['shop'] }], 'teams[].reconcilers has shop twice: each belongs to one'],
    ['a namespace of another one', [{ namespaces: ['shop'] }], 'teams[].namespaces has shop twice'],
    ['the namespace of Fairlead', [{ namespaces: ['fairlead-system'] }], 'which belongs to the platform'],
    ['the definition of Reconcilers', [{ definitions: ['reconcilers.fairlead.dev'] }], 'which belongs to the platform'],
    ['no kinds', [{ kinds: [] }], 'pay has neither definitions nor kinds'],
    ['no names, which would be all', [{ reconcilers: [] }], 'reconcilers'],
    ['all kinds', [{ kinds: ['*'] }], 'kinds'],
  ])('refuses a team with %s', async (_, [more], message) => {
    const shop = { name: 'shop', namespaces: ['shop'], reconcilers: ['shop'], kinds: ['configmaps'] }
    const pay = { name: 'pay', namespaces: ['pay'], reconcilers: ['pay'], kinds: ['configmaps'], ...more }
    await writeFile(join(dir, 'refused.yaml'), JSON.stringify({ teams: [shop, pay] }))
    await expect(rendered(CHART, '-f', join(dir, 'refused.yaml'))).rejects.toThrow(message)
  })

  it.each([
    ['docs/guides/deploying.md', 'node_modules/fairlead/deploy', 'kubectl apply -k deploy'],
    ['docs/deploy.md', 'RELATIVE-PATH-OR-GIT-URL/deploy', 'npx fairlead install -f src/index.ts'],
  ])(
    'by the kustomization of %s, dispatchers run the module that is in the image and was installed',
    async (file, at, installs) => {
      const page = await readFile(join(DEPLOY, '..', file), 'utf8')
      const [, indent = '', indented = ''] = /( *)```yaml\n( *apiVersion: kustomize[^`]*)```/.exec(page) ?? []
      const own = await mkdtemp(join(dir, 'first-'))
      const yaml = indented.replaceAll(new RegExp(`^${indent}`, 'gm'), '').replaceAll('DIGEST', 'b'.repeat(64))
      await writeFile(
        join(own, 'kustomization.yaml'),
        yaml.replace(at, relative(own, DEPLOY)).replaceAll('REGISTRY', 'r.test'),
      )
      const dispatcher = (await kustomized(own)).find(({ metadata }) => metadata.name === 'fairlead-dispatcher')
      expect(JSON.stringify(dispatcher)).toContain(
        '"args":["dispatch","--listen",":8080","--wait-seconds","50","-f","src/index.ts"]',
      )
      expect(JSON.stringify(dispatcher)).toContain(`"image":"r.test/my-operator@sha256:${'b'.repeat(64)}"`)
      // `fairlead image` without --include packs src.
      expect(page).toMatch(/npx fairlead image --push REGISTRY\/my-operator:TAG\n/)
      expect(page).toContain(installs)
    },
  )

  it('takes the users of NATS for shards', async () => {
    const users = join(dir, 'users.conf')
    await writeFile(users, 'accounts: { "OF": { "shards": [] } }\n')
    const objects = await rendered(CHART, '--set-file', `nats.users=${users}`)
    expect(JSON.stringify(objects.find(({ kind }) => kind === 'ConfigMap'))).toContain('shards')
  })

  it('has cert-manager issue the certificates that install would make', async () => {
    const objects = await rendered(CHART, '--set', 'tls.source=CertManager')
    expect(objects.filter(isHook)).toEqual([])
    const issued = objects.filter(({ kind }) => kind === 'Certificate') as (KubeObject & {
      spec: { secretName: string; dnsNames?: string[] }
    })[]
    const leaves = issued.filter(({ spec }) => spec.dnsNames !== undefined)
    const { X509Certificate } = await import('node:crypto')
    const made = natsCertificates(new Map(), new Date())
      .map(
        ({ metadata, data }) => [metadata.name, new X509Certificate(Buffer.from(data['tls.crt'], 'base64'))] as const,
      )
      .filter(([name]) => name !== 'fairlead-nats-ca')
      .map(([name, { subjectAltName = '' }]) => [
        name,
        subjectAltName.split(', ').map((san) => san.replace('DNS:', '')),
      ])
    expect(leaves.map(({ spec }) => [spec.secretName, spec.dnsNames])).toEqual(made)
  })
})

const functions = await builtins()
const EACH = functions.flatMap(({ name }) => ['--set', `functions.${name}.enabled=true`])

describe('the chart of the functions', () => {
  it('has what install applies for them', async () => {
    const made = (await rendered(FUNCTIONS_CHART, ...EACH)).filter((one) => !isHook(one))
    const manifests = functions.map((one) => manifest(one))
    const wanted = [...manifests.flatMap((one) => functionRbac(one)), ...definitionsOf(functions), ...manifests]
    expect(byTitle(made)).toEqual(byTitle(plain(wanted) as unknown as KubeObject[]))
  })

  it('has no function that its values do not enable', async () => {
    const made = (await rendered(FUNCTIONS_CHART)).filter((one) => !isHook(one))
    expect(made.map(titleOf)).toEqual([])
  })

  it('leaves functions out, and has others called over HTTP', async () => {
    const url = 'http://at.fairlead-functions.svc.cluster.local'
    const objects = await rendered(
      FUNCTIONS_CHART,
      '--set',
      `functions.at.enabled=true,functions.at.url=${url},functions.at.revision=v7`,
    )
    const reconcilers = objects.filter(({ kind }) => kind === 'Reconciler')
    expect(reconcilers).toMatchObject([
      { metadata: { name: 'at' }, spec: { invoke: { http: { url } }, revision: 'v7' } },
    ])
  })

  it('gives Reconcilers the label of a shard', async () => {
    const reconcilers = (await rendered(FUNCTIONS_CHART, ...EACH, '--set', 'shard=b')).filter(
      ({ kind }) => kind === 'Reconciler',
    )
    expect(reconcilers.map(({ metadata }) => metadata.labels)).toEqual(
      functions.map(() => ({ 'fairlead.dev/shard': 'b' })),
    )
  })
})

describe('a chart of functions of a user', () => {
  it('is made by the command, and checks with the image and the module that it is given', async () => {
    const to = join(dir, 'own')
    const image = `r.example.com/ops@sha256:${'b'.repeat(64)}`
    const args = ['--to', to, '--image', image, '--module', 'src/index.ts', '--name', 'ops', '--chart-version', '1.2.3']
    const { code } = await command(['generate', 'chart', '-f', 'docs/examples/workspace/workspace.ts', ...args])
    expect(code).toBe(0)
    expect(await helm(['lint', '--strict', to, ...SYSTEM])).toContain('0 chart(s) failed')
    const objects = await rendered(to)
    expect(objects.filter((one) => !isHook(one)).map(({ kind }) => kind)).toEqual(
      expect.arrayContaining(['CustomResourceDefinition', 'Reconciler', 'ServiceAccount']),
    )
    const job = JSON.stringify(objects.find(({ kind }) => kind === 'Job'))
    expect(job).toContain(`"image":"${image}","args":["install","--check","-f","src/index.ts"]`)
    const wrong = await command(['generate', 'chart', '--to', to, '--image', image, '--chart-version', '1'])
    expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('write it like 1.2.0') })
  })

  it('has the definition and the policy of a resource once, while one of its functions is enabled', async () => {
    const [file, to] = [join(dir, 'two.ts'), join(dir, 'two')]
    const sdk = JSON.stringify(join(import.meta.dirname, '../../sdk/index.ts'))
    await writeFile(
      file,
      `import { onlyGroups, reconciler, resource, z } from ${sdk}
       const Shop = resource({ group: 'example.com', version: 'v1', kind: 'Shop', plural: 'shops',
         spec: z.object({}), status: z.object({}), rules: [onlyGroups(['admins'], ['DELETE'])] })
       export const one = reconciler({ name: 'one', for: Shop, selector: 'a=b', reconcile: () => undefined })
       export const two = reconciler({ name: 'two', for: Shop, selector: 'a!=b', reconcile: () => undefined })`,
    )
    const args = ['--module', 'two.ts', '--to', to, '--image', 'r.example.com/two:1']
    expect(await command(['generate', 'chart', '-f', file, ...args])).toMatchObject({ code: 0 })
    const shared = ['CustomResourceDefinition', 'ValidatingAdmissionPolicy', 'ValidatingAdmissionPolicyBinding']
    const of = async (...names: string[]) => {
      const off = names.flatMap((name) => ['--set', `functions.${name}.enabled=false`])
      return (await rendered(to, ...off))
        .map(({ kind }) => kind)
        .filter((kind) => shared.includes(kind))
        .sort()
    }
    expect([await of(), await of('one'), await of('two'), await of('one', 'two')]).toEqual([shared, shared, shared, []])
  })
})

it('a chart gives a function in a dispatcher the rights to its configuration, and one over HTTP none', async () => {
  const to = join(dir, 'configured')
  const args = [
    '--to',
    to,
    '--image',
    'r.example.com/ops:1',
    '--module',
    'x.ts',
    '--name',
    'ops',
    '--chart-version',
    '1.2.3',
  ]
  const { code, stderr } = await command(['generate', 'chart', '-f', 'test/e2e/config-function.ts', ...args])
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  const ofConfig = async (...sets: string[]) =>
    (await rendered(to, ...sets)).map(titleOf).filter((title) => title.endsWith('-external'))
  expect(await ofConfig()).toEqual(['Role fairlead-keyed-external', 'RoleBinding fairlead-keyed-external'])
  expect(await ofConfig('--set', 'functions.keyed.url=http://keyed.fns.svc')).toEqual([])
})

describe('charts', () => {
  it.each([CHART, FUNCTIONS_CHART])('%s is found in order by helm lint', async (chart) => {
    expect(await helm(['lint', '--strict', chart, ...SYSTEM])).toContain('0 chart(s) failed')
  })

  it.each([
    [CHART, 'bridge.replicas=two', /bridge\/replicas.*got string, want integer/],
    [CHART, 'nats.replicas=2', /nats\/replicas.*value must be one of 1, 3/],
    [CHART, 'tls.source=Vault', /tls\/source.*value must be one of 'Job', 'Secret', 'CertManager'/],
    [CHART, 'console.hosts={https://console.example.com}', /console\/hosts\/0.*does not match pattern/],
    [CHART, 'dispatcher.replica=1', /dispatcher.*additional properties 'replica' not allowed/],
    [CHART, 'networkPolicy.natsCidrs={nats.example.com}', /networkPolicy\/natsCidrs\/0.*does not match pattern/],
    [CHART, 'nats.resources.limits.memory=much', /limits.memory is "much": write a quantity such as 1Gi or 512Mi/],
    [CHART, 'image.digest=latest', /image\/digest.*does not match pattern/],
    [CHART, 'nats.enabled=false,tls.source=Secret', /nats.url is empty.*tls:\/\/nats.example.com:4222/],
    [CHART, 'nats.enabled=false', /tls.source Job makes certificates for the NATS of this chart/],
    [CHART, 'small=yes', /small.*value must be one of true, false, 'move'/],
    [CHART, 'small=true,shard=b', /small is true, and shard is b: only a NATS with certificates has shards/],
    [CHART, 'small=true,nats.replicas=3', /nats.replicas is 3: .* one NATS server.*set small to move/],
    [CHART, 'small=true,nats.enabled=false,tls.source=Secret', /small is true, and nats.enabled is false/],
    [CHART, 'small=true,nats.users=x', /small is true, and nats.users is set/],
    [CHART, 'small=true,console.enabled=true', /console.enabled is true: no other pod reaches the NATS/],
    [CHART, 'small=true,dispatcher.replicas=3', /dispatcher.replicas is 3: a small installation is one pod/],
    [CHART, 'small=true,bridge.env[0].name=A', /bridge.env is set: .*set the variables in dispatcher.env/],
    [
      CHART,
      'small=true,dispatcher.env[0].name=FAIRLEAD_PREFIX',
      /small is true, and dispatcher.env has FAIRLEAD_PREFIX/,
    ],
    [CHART, 'small=move,dispatcher.env[0].name=FAIRLEAD_SHARD', /small is move, and dispatcher.env has FAIRLEAD_SHARD/],
    [FUNCTIONS_CHART, 'functions.at.url=nowhere', /functions\/at\/url.*does not match pattern/],
  ])('%s refuses %s, and says why', async (chart, set, message) => {
    await expect(rendered(chart, '--set', set)).rejects.toThrow(message)
  })

  it('are for the namespace of Fairlead alone', async () => {
    for (const chart of [CHART, FUNCTIONS_CHART])
      await expect(helm(['template', 'x', chart])).rejects.toThrow('give --namespace fairlead-system')
  })

  it('have the version of the package', async () => {
    const { version } = JSON.parse(await readFile(join(DEPLOY, '../package.json'), 'utf8')) as { version: string }
    for (const chart of [CHART, FUNCTIONS_CHART])
      expect(await helm(['show', 'chart', chart])).toMatch(
        new RegExp(`appVersion: "?${version}"?\\n(.*\\n)*version: ${version}\\n`),
      )
  })

  it('are packed', async () => {
    const copy = join(dir, 'copy')
    await cp(CHART, copy, { recursive: true })
    expect(await helm(['package', copy, '--destination', dir])).toContain('fairlead-0.1.0.tgz')
  })
})
