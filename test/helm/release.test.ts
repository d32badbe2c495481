import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { stringify } from 'yaml'
import type { Reconciler } from '#sdk'
import { ConfigMap, Deployment, definitionsOf, type Kind, type KubeObject, kind, Secret } from '#sdk'
import { lawsOf, outcomeOf, simulate } from '#testing'
import { type ChartFiles, functionOf, helm, WEB, web } from './charts.ts'

const ANNOTATIONS = 'helm.sdk.operatorframework.io/'
const secretTemplate = (value: string) => `
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-auth}
stringData: {password: ${value}}
`

interface Shown {
  type: string
  status: string
  reason: string
  message?: string
}
const conditionsIn = (object: KubeObject | undefined) =>
  ((object?.status as { conditions?: Shown[] } | undefined)?.conditions ?? []).map((one) =>
    [one.type, one.status, one.reason, one.message ?? ''].join(' ').trim(),
  )
const conditionsOf = (outcome: Awaited<ReturnType<typeof outcomeOf>>) =>
  (outcome.conditions ?? []).map((one) => [one.type, one.status, 'reason' in one ? one.reason : ''].join(' ').trim())
const messageOf = ({ conditions = [] }: Awaited<ReturnType<typeof outcomeOf>>, type: string): string => {
  const found = conditions.find((one) => one.type === type)
  return found !== undefined && 'message' in found ? (found.message ?? '') : ''
}

async function installed(one: Reconciler, object: KubeObject) {
  const world = simulate(one, { objects: [object] })
  await world.runUntilIdle()
  return world
}
const release = (world: Awaited<ReturnType<typeof installed>>) =>
  (world.object?.status as { deployedRelease?: { name: string; manifest?: string } } | undefined)?.deployedRelease

describe('a release', () => {
  it('has what the chart makes of the spec, in the namespace of the object, with the label of the chart', async () => {
    const world = await installed(await functionOf(WEB), web({ replicas: 3, text: 'hello' }))
    const [config] = world.list(ConfigMap)
    expect(config?.data).toEqual({ text: 'hello', release: 'shop/a/1/true' })
    expect(config?.metadata).toMatchObject({
      name: 'a-config',
      namespace: 'shop',
      labels: { [`${ANNOTATIONS}chart`]: 'web' },
    })
    expect(world.list(Deployment)[0]?.spec?.replicas).toBe(3)
    expect(world.list(Deployment)[0]?.spec?.template).not.toHaveProperty('spec.nodeSelector')
  })

  it('is Deployed with the notes of the chart, and with its manifest in the status', async () => {
    const world = await installed(await functionOf(WEB), web())
    expect(conditionsIn(world.object)).toEqual([
      'Initialized True Initialized',
      'Deployed True InstallSuccessful a has 1 replicas.',
    ])
    expect(release(world)?.name).toBe('a')
    expect(release(world)?.manifest).toContain('name: a-config')
    world.edit({ spec: { replicas: 2 } })
    await world.runUntilIdle()
    expect(conditionsIn(world.object)).toContain('Deployed True UpgradeSuccessful a has 2 replicas.')
  })

  it('is served although operator-sdk has left a condition without a reason, and goes when it is deleted', async () => {
    const lastTransitionTime = '2030-01-01T00:00:00Z'
    const status = { conditions: [{ type: 'Initialized', status: 'True', lastTransitionTime }] }
    const world = await installed(await functionOf(WEB), { ...web(), status })
    expect(conditionsIn(world.object)).toContain('Initialized True Initialized')
    expect(world.list(ConfigMap)).toHaveLength(1)
    world.delete()
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
  })

  it('loses an object that the chart makes no longer, and one that others change is set back', async () => {
    const files = { ...WEB, 'templates/config.yaml': `{{ if .Values.text }}${WEB['templates/config.yaml']}{{ end }}` }
    const world = await installed(await functionOf(files), web())
    world.patch(ConfigMap, { data: { text: 'other' } })
    await world.runUntilIdle()
    expect(world.list(ConfigMap)[0]?.data?.['text']).toBe('hi')
    world.edit({ spec: { text: '' } })
    await world.runUntilIdle()
    expect([world.list(ConfigMap).length, world.list(Deployment).length]).toEqual([0, 1])
  })

  it('keeps the contents of its Secrets out of the status', async () => {
    const world = await installed(await functionOf({ ...WEB, 'templates/auth.yaml': secretTemplate('hunter2') }), web())
    expect(world.list(Secret)[0]?.data?.['password']).toBe(btoa('hunter2'))
    expect(release(world)?.manifest).toContain('a-auth')
    expect(JSON.stringify(world.object)).not.toMatch(/hunter2|aHVudGVyMg/)
  })

  it('has no manifest in the status that would make the object too large', async () => {
    const files = {
      ...WEB,
      'templates/large.yaml':
        WEB['templates/config.yaml']
          ?.replace('-config', '-large')
          .replace('{{ .Values.text | quote }}', '{{ repeat 200000 "x" }}') ?? '',
    }
    const world = await installed(await functionOf(files), web())
    expect([release(world)?.name, release(world)?.manifest]).toEqual(['a', undefined])
    expect(conditionsIn(world.object)[1]).toMatch(/^Deployed True InstallSuccessful/)
  })

  const scenario = {
    objects: [web({ replicas: 2 })],
    steps: [
      ['the spec changes', (world: ReturnType<typeof simulate>) => world.edit({ spec: { text: 'other' } })],
      ['an object is deleted', (world: ReturnType<typeof simulate>) => world.delete(ConfigMap)],
    ],
  } as const
  describe('keeps the laws', async () => {
    it.each(lawsOf(await functionOf(WEB), scenario as never))('%s', (_, holds) => holds())
  })
})

describe('overrides', () => {
  it('win over the spec, and are texts with variables and templates', async () => {
    process.env['FL_HELM_IMAGE'] = 'registry/web:7'
    const overrideValues = {
      'image.tag': `{{ ("$FL_HELM_IMAGE" | split ":")._1 }}`,
      text: '${FL_HELM_IMAGE}',
      'list[0]': '5',
    }
    const files = {
      ...WEB,
      'templates/x.yaml':
        WEB['templates/config.yaml']
          ?.replace('-config', '-x')
          .replace('{{ .Values.text | quote }}', '{{ kindOf (index .Values.list 0) }}') ?? '',
    }
    const one = await functionOf({ ...files, 'values.yaml': `${WEB['values.yaml']}list: [1]\n` }, { overrideValues })
    const world = await installed(one, web({ text: 'mine', image: { tag: '1' } }))
    expect(world.list(Deployment)[0]?.spec?.template.spec?.containers[0]?.image).toBe('registry.example.com/web:7')
    expect(world.list(ConfigMap).map(({ data }) => data?.['text'])).toEqual(['registry/web:7', 'string'])
    expect(world.events.filter(({ reason }) => reason === 'OverrideValuesInUse').map(({ message }) => message)).toEqual(
      Object.entries(overrideValues).map(
        ([path, text]) => `Chart value "${path}" overridden to "${text}" by operator's watches.yaml`,
      ),
    )
  })

  it('are refused with the field if a template is wrong', async () => {
    await expect(functionOf(WEB, { overrideValues: { text: '{{ nothing }}' } })).rejects.toThrow(
      /overrideValues of Web cannot be evaluated: .*function "nothing" not defined/s,
    )
  })
})

describe('a chart that cannot be rendered', () => {
  const failing = {
    ...WEB,
    'templates/check.yaml': '{{ if gt (int .Values.replicas) 5 }}{{ fail "at most 5" }}{{ end }}',
  }

  it('fails the installation, writes nothing, and says what Helm says', async () => {
    const world = await installed(await functionOf(failing), web({ replicas: 6 }))
    const [initialized, failed, ...others] = conditionsIn(world.object)
    expect([initialized, others]).toEqual(['Initialized True Initialized', []])
    expect(failed).toMatch(/^ReleaseFailed True InstallError .*at most 5/)
    expect(world.list(Deployment)).toEqual([])
  })

  it('leaves an installed release as it is, and is irreconcilable until it is corrected', async () => {
    const world = await installed(await functionOf(failing), web())
    world.edit({ spec: { replicas: 6 } })
    await world.runUntilIdle()
    expect(conditionsIn(world.object).at(-1)).toMatch(/^Irreconcilable True ReconcileError .*at most 5/)
    expect(conditionsIn(world.object)[1]).toMatch(/^Deployed True InstallSuccessful/)
    expect(world.list(Deployment)[0]?.spec?.replicas).toBe(1)
    world.edit({ spec: { replicas: 2 } })
    await world.runUntilIdle()
    expect(conditionsIn(world.object).map((one) => one.split(' ')[0])).toEqual(['Initialized', 'Deployed'])
  })

  const made = (apiVersion: string, kind: string, metadata: string): ChartFiles => ({
    ...WEB,
    'templates/other.yaml': `{{ if .Values.other }}\napiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: ${metadata}\n{{ end }}`,
  })
  it.each<[string, ChartFiles, string]>([
    [
      'a kind that is not declared',
      made('networking.k8s.io/v1', 'Ingress', '{name: x}'),
      'Ingress x is of a kind that is not declared (networking.k8s.io/v1): add it to kinds.Web of helmFunctions(), and install the function again',
    ],
    [
      'a kind without namespace',
      made('rbac.authorization.k8s.io/v1', 'ClusterRole', '{name: x}'),
      'ClusterRole x has no namespace, so that Web, which has one, cannot own it: switch it off by a value of the chart, and apply it beside',
    ],
    [
      'a kind of the chart without namespace',
      {
        ...made('z.example.com/v1', 'Zone', '{name: x}'),
        'crds/zone.yaml':
          'kind: CustomResourceDefinition\nspec: {group: z.example.com, scope: Cluster, names: {kind: Zone, plural: zones}}\n',
      },
      'Zone x has no namespace, so that Web',
    ],
    [
      'another namespace',
      made('v1', 'ConfigMap', '{name: x, namespace: other}'),
      'ConfigMap other/x is outside of namespace shop: objects in other namespaces are not offered',
    ],
    [
      'no name',
      made('v1', 'ConfigMap', '{generateName: x}'),
      'a ConfigMap without metadata.name: generateName is not offered',
    ],
    [
      'no kind',
      { ...WEB, 'templates/other.yaml': '{{ if .Values.other }}\nx: 1\n{{ end }}' },
      'without apiVersion and kind',
    ],
    [
      'a hook',
      made('v1', 'ConfigMap', '{name: x, annotations: {helm.sh/hook: "pre-install,post-delete"}}'),
      'ConfigMap x is a hook post-delete, which is not offered: pre-install, post-install, pre-upgrade, post-upgrade, pre-delete are',
    ],
    [
      'a weight that is none',
      made('v1', 'ConfigMap', '{name: x, annotations: {helm.sh/hook: pre-install, helm.sh/hook-weight: a}}'),
      'ConfigMap x has the helm.sh/hook-weight "a", which is no whole number',
    ],
    [
      'a name that is drawn',
      made('v1', 'ConfigMap', '{name: "x-{{ randAlpha 8 | lower }}"}'),
      'has a name that differs in each rendering, so that each run would make another one: give the chart a fixed name',
    ],
  ])('is refused with the object for %s', async (_, files, message) => {
    const outcome = await outcomeOf(await functionOf(files), { object: web({ other: true }) })
    expect(outcome.apply).toBeUndefined()
    expect(conditionsOf(outcome)).toEqual(['Initialized True Initialized', 'ReleaseFailed True InstallError'])
    expect(messageOf(outcome, 'ReleaseFailed')).toContain(message)
  })
})

describe('what is not written', () => {
  it('of tests and rollbacks: their hooks', async () => {
    const hook = (name: string) =>
      `apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ${name}, annotations: {helm.sh/hook: ${name}}}\n`
    const files = { ...WEB, 'templates/t.yaml': hook('test'), 'templates/r.yaml': hook('pre-rollback') }
    const world = await installed(await functionOf(files), web())
    expect(world.list(ConfigMap).map(({ metadata }) => metadata.name)).toEqual(['a-config'])
  })

  it('is in ReleaseFailed while the API server refuses it, first as an installation, then as an upgrade', async () => {
    const one = await functionOf(WEB)
    const world = simulate(one, { objects: [web()] })
    world.refuse(Deployment)
    await world.runUntilIdle()
    expect(conditionsIn(world.object)[1]).toMatch(/^ReleaseFailed True InstallError Deployment a: /)
    expect([world.list(ConfigMap).length, release(world)]).toEqual([1, undefined])
    world.admit(Deployment)
    await world.runUntilIdle()
    expect(conditionsIn(world.object).join()).not.toContain('ReleaseFailed')
    world.refuse(Deployment, 'Invalid')
    world.edit({ spec: { replicas: 9 } })
    await world.runUntilIdle()
    expect(conditionsIn(world.object).join()).toContain('ReleaseFailed True UpgradeError Deployment a: ')
  })
})

describe('the next run', () => {
  const requeue = async (watch: object, annotations: Record<string, string>) =>
    outcomeOf(await functionOf(WEB, watch), { object: web({}, annotations) })

  it('comes after the period of the watch, or that of the annotation', async () => {
    expect((await requeue({}, {})).requeueAfterSeconds).toBeUndefined()
    expect((await requeue({ reconcilePeriod: '2m' }, {})).requeueAfterSeconds).toBe(120)
    expect(
      (await requeue({ reconcilePeriod: '2m' }, { [`${ANNOTATIONS}reconcile-period`]: '10m' })).requeueAfterSeconds,
    ).toBe(600)
  })

  it('does not come with an annotation that is no period, which the condition names', async () => {
    const outcome = await requeue({ reconcilePeriod: '2m' }, { [`${ANNOTATIONS}reconcile-period`]: 'soon' })
    expect([outcome.apply, outcome.requeueAfterSeconds]).toEqual([undefined, undefined])
    expect(messageOf(outcome, 'Irreconcilable')).toBe(
      `the annotation ${ANNOTATIONS}reconcile-period is "soon": write 10m, or 1h30m`,
    )
  })
})

describe('values that each rendering draws anew', () => {
  const random: ChartFiles = {
    ...WEB,
    'templates/auth.yaml': secretTemplate('{{ randAlphaNum 20 | quote }}'),
    'templates/ca.yaml': `
{{ $ca := genCA "a" 365 }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-ca}
data: {ca: {{ $ca.Cert | quote }}, fixed: {{ .Values.text }}, made: {{ now | unixEpoch | quote }}}
`,
  }

  it('stay as long as their object exists, also if another process renders, and other fields change', async () => {
    const world = await installed(await functionOf(random), web())
    const drawn = () => [
      world.list(Secret)[0]?.data,
      world.list(ConfigMap).find(({ metadata }) => metadata.name === 'a-ca')?.data,
    ]
    const [secret, ca] = drawn()
    const writes = world.writes.length
    await world.runUntilIdle()
    expect(world.writes.length).toBe(writes)
    world.edit({ spec: { text: 'other' } })
    await world.runUntilIdle()
    expect(drawn()).toEqual([secret, { ...ca, fixed: 'other' }])
    world.delete(Secret)
    await world.runUntilIdle()
    expect(drawn()[0]).not.toEqual(secret)
  })

  it('that depend on the values are drawn again for other values, and no others', async () => {
    const hashed = (name: string, text: string) => `
{{ $password := "p" }}
apiVersion: v1
kind: ConfigMap
metadata: {name: ${name}}
data: {users: {{ ${text} | quote }}, image: {{ .Values.image.tag | quote }}}
`
    const files = {
      ...WEB,
      'templates/_users.tpl': '{{ define "plain" }}{{ .Values.text }}{{ end }}',
      'templates/users.yaml': hashed('users', 'htpasswd "me" .Values.text'),
      'templates/id.yaml': hashed('id', 'uuidv4'),
    }
    const world = await installed(await functionOf(files), web())
    const drawn = (name: string) =>
      world.list(ConfigMap).find(({ metadata }) => metadata.name === name)?.data?.['users']
    const [users, id] = [drawn('users'), drawn('id')]
    world.edit({ metadata: { labels: { a: 'b' } } })
    await world.runUntilIdle()
    expect([drawn('users'), drawn('id')]).toEqual([users, id])
    world.edit({ spec: { text: 'other' } })
    await world.runUntilIdle()
    expect(drawn('users')).not.toBe(users)
    expect(drawn('id')).toBe(id)
  })

  it('in a named template may be used by any other', async () => {
    const files = {
      ...WEB,
      'templates/_users.tpl': '{{ define "users" }}{{ htpasswd "me" .Values.text }}{{ end }}',
      'templates/users.yaml':
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: users}\ndata: {users: {{ include "users" . | quote }}}\n',
    }
    const world = await installed(await functionOf(files), web())
    const drawn = () => world.list(ConfigMap).find(({ metadata }) => metadata.name === 'users')?.data?.['users']
    const before = drawn()
    world.edit({ spec: { text: 'other' } })
    await world.runUntilIdle()
    expect(drawn()).not.toBe(before)
  })

  it('are named with the place and the stable way, as is lookup', async () => {
    const files = {
      ...random,
      'templates/look.yaml':
        '\n{{/* now */}}{{ if lookup "v1" "Secret" "a" "b" }}{{ end }}{{ $_ := list .Values.now "uuidv4" }}',
    }
    const world = await installed(await functionOf(files), web())
    const [event] = world.events.filter(({ reason }) => reason === 'UnstableTemplate')
    expect(event?.message.split('; ').map((one) => one.split(': ').slice(0, 2).join(' '))).toEqual([
      'templates/auth.yaml:5 randAlphaNum',
      'templates/ca.yaml:2 genCA',
      'templates/ca.yaml:6 now',
      'templates/look.yaml:2 lookup',
    ])
    expect(event?.message).toContain(
      'lookup: it finds nothing, because rendering reads no cluster: give the value in the spec',
    )
  })
})

describe('resource-policy keep', () => {
  const KEEP = 'annotations: {helm.sh/resource-policy: keep}'
  const files = {
    ...WEB,
    'templates/kept.yaml': `{{ if .Values.text }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kept\n  ${KEEP}\n{{ end }}`,
  }
  const names = (world: Awaited<ReturnType<typeof installed>>) =>
    world.list(ConfigMap).map(({ metadata }) => metadata.name)

  it('leaves an object that the chart makes no longer, and after the release', async () => {
    const world = await installed(await functionOf(files), web())
    world.edit({ spec: { text: '' } })
    await world.runUntilIdle()
    expect(names(world)).toEqual(['a-config', 'kept'])
    world.delete()
    await world.runUntilIdle()
    expect([world.object, names(world)]).toEqual([undefined, ['kept']])
  })

  it('leaves it with uninstall-wait too', async () => {
    const world = await installed(await functionOf(files), web({}, { [`${ANNOTATIONS}uninstall-wait`]: 'true' }))
    world.delete()
    await world.runUntilIdle()
    expect([world.object, names(world)]).toEqual([undefined, ['kept']])
  })
})

describe('the deletion', () => {
  it('needs no rendering: a release that is irreconcilable goes too', async () => {
    const files = { ...WEB, 'templates/check.yaml': '{{ if not .Values.text }}{{ fail "no text" }}{{ end }}' }
    const world = await installed(await functionOf(files), web())
    world.edit({ spec: { text: '' } })
    await world.runUntilIdle()
    expect(conditionsIn(world.object).at(-1)).toMatch(/^Irreconcilable/)
    world.delete()
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
  })

  const deleted = (annotations: Record<string, string>) => ({
    ...web({}, annotations),
    metadata: {
      ...web({}, annotations).metadata,
      deletionTimestamp: '2030-01-01T00:00:00Z',
      finalizers: ['fairlead.dev/web-demo-example-com', `${ANNOTATIONS}uninstall-release`],
    },
  })

  it('waits for nothing without the annotation uninstall-wait', async () => {
    expect(await outcomeOf(await functionOf(WEB), { object: deleted({}) })).toEqual({})
  })

  it('waits with it until all objects are gone', async () => {
    const one = await functionOf(WEB, { reconcilePeriod: '30s' })
    const world = await installed(one, web({}, { [`${ANNOTATIONS}uninstall-wait`]: '1' }))
    world.patch(Deployment, { metadata: { finalizers: ['example.com/waits'] } })
    world.delete()
    await world.runUntilIdle()
    expect(conditionsIn(world.object)).toContain(
      'Deployed False UninstallSuccessful Waiting until all resources are deleted.',
    )
    expect([world.list(ConfigMap).length, world.list(Deployment).length]).toEqual([0, 1])
    world.patch(Deployment, { metadata: { finalizers: null } })
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
  })
})

describe('what the operators on Helm know by annotations', () => {
  it.each(['upgrade-force', 'rollback-force', 'upgrade-description'])(
    '%s is named in an Event, with what happens instead',
    async (name) => {
      const world = await installed(await functionOf(WEB), web({}, { [`${ANNOTATIONS}${name}`]: 'true' }))
      expect(world.events).toContainEqual(
        expect.objectContaining({
          reason: 'AnnotationNotOffered',
          message: expect.stringContaining(`the annotation ${ANNOTATIONS}${name} has no effect: `),
        }),
      )
    },
  )
})

describe('the declaration of a function', () => {
  const kindsOf = ({ owns }: Reconciler) =>
    owns.map(({ kind, group, resource, strategy }) => `${kind} ${resource}.${group} ${strategy}`)

  it('owns what the chart makes with its own values, and what is declared', async () => {
    const Ingress = kind({ group: 'networking.k8s.io', version: 'v1', kind: 'Ingress', plural: 'ingresses' })
    const Recreated: Kind<unknown> = { ...Deployment, strategy: 'Recreate' }
    expect(kindsOf(await functionOf(WEB))).toEqual(['ConfigMap configmaps. Apply', 'Deployment deployments.apps Apply'])
    expect(kindsOf(await functionOf(WEB, {}, { kinds: { Web: [Ingress, Recreated] } }))).toEqual([
      'Ingress ingresses.networking.k8s.io Apply',
      'Deployment deployments.apps Recreate',
      'ConfigMap configmaps. Apply',
    ])
  })

  it('renders for the version and the kinds of the API server that are given, and serves the given namespaces', async () => {
    const seen = '{{ .Capabilities.KubeVersion.Version }} {{ .Capabilities.APIVersions.Has "example.com/v1" }}'
    const files = { ...WEB, 'templates/config.yaml': `${WEB['templates/config.yaml']}  seen: ${seen}\n` }
    const options = { kubeVersion: 'v1.30.7', apiVersions: ['example.com/v1'], namespaces: ['shop'] }
    const one = await functionOf(files, {}, options)
    expect((await installed(one, web())).list(ConfigMap)[0]?.data?.['seen']).toBe('v1.30.7 true')
    expect(one.namespaces).toEqual(['shop'])
  })

  it('needs declared kinds if the chart cannot be rendered without values', async () => {
    const files = { ...WEB, 'templates/needs.yaml': '{{ required "give a host" .Values.host }}' }
    await expect(functionOf(files)).rejects.toThrow(
      /^the kinds of chart web are not known, because it needs values: declare them in kinds.Web: .*give a host/s,
    )
    const one = await functionOf(files, {}, { kinds: { Web: [ConfigMap, Deployment] } })
    expect(kindsOf(one).length).toBe(2)
  })

  it('refuses declared kinds of no entry, and a Helm that is not there', async () => {
    await expect(functionOf(WEB, {}, { kinds: { Wep: [ConfigMap] } })).rejects.toThrow('kinds.Wep is for no entry of ')
    await expect(functionOf(WEB, {}, { helm: '/none/helm' })).rejects.toThrow(
      'there is no program /none/helm: install Helm, or give its path in "helm"',
    )
    await expect(functionOf(WEB, { chart: 'none' })).rejects.toThrow(/^cannot read the chart .*none/)
  })

  it('has the definition of the user as it is', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'fl-crds-'))
    const schema = {
      type: 'object',
      properties: {
        spec: { type: 'object', properties: { replicas: { type: 'integer' } } },
        status: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
      },
    }
    const version = {
      name: 'v1',
      served: true,
      storage: true,
      subresources: { status: {} },
      schema: { openAPIV3Schema: schema },
    }
    const names = { kind: 'Web', plural: 'webbies', listKind: 'WebList', singular: 'web' }
    const crd = (changes: object = {}) => ({
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: 'webbies.demo.example.com' },
      spec: { group: 'demo.example.com', names, scope: 'Namespaced', versions: [version], ...changes },
    })
    const functionFor = async (definition: object) => {
      await writeFile(join(dir, 'web.yaml'), stringify(definition))
      return functionOf(WEB, {}, { definitions: dir })
    }
    const one = await functionFor(crd())
    expect([definitionsOf([one]), one.for.resource]).toEqual([[crd()], 'webbies'])
    await expect(functionFor(crd({ scope: 'Cluster' }))).rejects.toThrow('a release needs the namespace of its object')
    await expect(functionFor(crd({ versions: [version, version] }))).rejects.toThrow('has not the one version v1')
    await expect(functionFor(crd({ versions: [{ ...version, subresources: {} }] }))).rejects.toThrow(
      'give it subresources.status, and status x-kubernetes-preserve-unknown-fields: true',
    )
  })

  it('has the name, the selector and the former finalizers of the watch', async () => {
    const one = await functionOf(WEB, { selector: { matchLabels: { tier: 'a' } }, maxConcurrentReconciles: 4 })
    expect(one).toMatchObject({
      name: 'web-demo-example-com',
      selector: 'tier=a',
      concurrency: 4,
      formerFinalizers: [`${ANNOTATIONS}uninstall-release`, 'uninstall-helm-release'],
    })
    expect(helm).toContain('helm')
  })
})
