import { describe, expect, it } from 'vitest'
import { type KubeObject, type RunInput, TerminalError } from '#contracts'
import { resourcePath } from '#kube'
import { CONFIG_MAPS, configMap, PODS, useFixture, WIDGETS } from './fixture.ts'
import { SECRETS } from './objects.ts'

const fixture = useFixture()

const { strategy: _, ...configMaps } = CONFIG_MAPS
const CLASSES = { group: 'test.fairlead.dev', version: 'v1', resource: 'classes', kind: 'Class' }
const { strategy: __, ...secrets } = SECRETS
const createSecret = (namespace: string) =>
  fixture.kube.create<KubeObject>(resourcePath(secrets, namespace), {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 's' },
    stringData: { a: 'b' },
  })
let version = 1
let placed = 0

const stored = async (
  ref: typeof CLASSES,
  namespace: string | undefined,
  name: string,
  labels: Record<string, string> = {},
  options: { traceparent?: string } = {},
  verb: 'added' | 'deleted' = 'added',
) => {
  const metadata = {
    name,
    ...(namespace !== undefined && { namespace }),
    uid: `${namespace}-${name}`,
    resourceVersion: String(++version),
    labels,
  }
  const apiVersion = ref.group === '' ? 'v1' : `${ref.group}/${ref.version}`
  await fixture.events.put(ref, verb, { apiVersion, kind: ref.kind, metadata }, options)
}

/** What the function is given for a widget. */
async function given(name: string, related: object[], spec: object = {}): Promise<Record<string, string[]>> {
  for (const ref of [CLASSES]) if (!(await fixture.events.cursor(ref))) await fixture.listed(ref)
  const scene = await fixture.scene(name, { spec: { related, owns: [PODS] } })
  for (const [namespace, other] of [
    [name, 'a'],
    [name, 'b'],
    [`${name}-other`, 'a'],
  ] as const)
    await stored(configMaps, namespace, other, { letter: other })
  await stored(CLASSES, undefined, `${name}-class`)
  let input: RunInput | undefined
  const widget = await scene.widget('w', (run) => {
    input = run
    return {}
  })
  await scene.ended('w')
  await fixture.events.put(WIDGETS, 'modified', {
    ...widget,
    spec,
    metadata: { ...widget.metadata, resourceVersion: String(Number(widget.metadata.resourceVersion) + 1) },
  })
  await scene.run('w')
  await scene.stop()
  const inShort = ({ metadata }: KubeObject) => `${metadata.namespace ?? ''}/${metadata.name}`
  return Object.fromEntries(
    Object.entries(input!.related).map(([kind, objects]) => [kind, objects.map(inShort).sort()]),
  )
}

describe('what is related', () => {
  it('is what lives in the namespace of the primary', async () => {
    expect(await given('near', [configMaps])).toEqual({ 'ConfigMap.v1': ['near/a', 'near/b'] })
  })

  it('is what the selector matches, in all namespaces if so declared', async () => {
    const related = [{ ...configMaps, selector: 'letter=a', within: 'Cluster' }]
    const found = await given('labelled', related)
    expect(found['ConfigMap.v1']).toEqual(expect.arrayContaining(['labelled/a', 'labelled-other/a']))
    expect(found['ConfigMap.v1']).not.toContain('labelled/b')
  })

  it('is what fields of the primary name', async () => {
    const byName = { ...configMaps, byName: 'spec.uses[*].name' }
    expect(await given('named', [byName], { uses: [{ name: 'b' }, { name: 'none' }] })).toEqual({
      'ConfigMap.v1': ['named/b'],
    })
  })

  it('is what fields of the primary name, also where they name more than one request has room for', async () => {
    const byName = { ...configMaps, byName: 'spec.uses[*].name' }
    const uses = [{ name: 'b' }, ...Array.from({ length: 25_000 }, (_, n) => ({ name: `n${n}` }))]
    expect(await given('many', [byName], { uses })).toEqual({ 'ConfigMap.v1': ['many/b'] })
  })

  it.each<[string, object, string[], string[]]>([
    ['named as the primary', {}, [], ['w']],
    ['with a name that the primary has in a field', { byName: 'spec.letters[*]' }, ['x', 'none'], ['x']],
    [
      'also of more names than one request has room for',
      { byName: 'spec.letters[*]' },
      ['x', ...Array.from({ length: 5000 }, (_, n) => `n${n}`)],
      ['x'],
    ],
    ['and nothing where the primary has none', { byName: 'spec.letters[*]' }, [], []],
  ])('is what has a name in a field: %s', async (_, more, letters, expected) => {
    const name = `naming${++placed}`
    for (const letter of ['w', 'x']) await stored(configMaps, name, `with-${letter}`, { letter })
    const related = [{ ...configMaps, naming: 'metadata.labels.letter', ...more }]
    const names = expected.map((one) => `${name}/with-${one}`)
    expect(await given(name, related, { letters })).toEqual({ 'ConfigMap.v1': names })
  })

  it.each<[string, object, object, string[]]>([
    ['all of it', {}, { in: ['NAME-other'] }, ['NAME-other/a']],
    [
      'of several',
      { namespacePath: 'spec.in[*]' },
      { in: ['NAME', 'NAME-other', 'none'] },
      ['NAME-other/a', 'NAME/a', 'NAME/b'],
    ],
    ['by its labels', { selector: 'letter=b' }, { in: ['NAME'] }, ['NAME/b']],
    ['by its name', { byName: 'spec.name' }, { in: ['NAME', 'NAME-other'], name: 'a' }, ['NAME-other/a', 'NAME/a']],
    ['nothing where no field names one', {}, {}, []],
    ['nothing where the field is no name of a namespace', {}, { in: ['../NAME', '*', '>'] }, []],
    [
      'also where fields name more than one request has room for',
      { byName: 'spec.names[*]' },
      { in: ['NAME-other', 'NAME'], names: ['a', ...Array.from({ length: 5000 }, (_, n) => `n${n}`)] },
      ['NAME-other/a', 'NAME/a'],
    ],
    [
      'also where they name more namespaces than that',
      {},
      { in: ['NAME-other', ...Array.from({ length: 5000 }, (_, n) => `n${n}`)] },
      ['NAME-other/a'],
    ],
  ])('is what lives in the namespace that a field of the primary names: %s', async (_, more, spec, expected) => {
    const name = `placed${++placed}`
    const here = <T>(value: T) => JSON.parse(JSON.stringify(value).replaceAll('NAME', name)) as T
    const related = [{ ...configMaps, namespacePath: 'spec.in[*]', ...more }, CLASSES]
    expect(await given(name, related, here(spec))).toMatchObject({ 'ConfigMap.v1': here(expected) })
  })

  it('is read in another namespace with the generated rights, where a field names that namespace, and nowhere else', async () => {
    const name = 'elsewhere'
    const spec = {
      for: { ...WIDGETS, namespaces: [name] },
      owns: [],
      related: [{ ...secrets, namespacePath: 'spec.in' }],
      serviceAccount: { name: 'robot', namespace: name },
    }
    await fixture.listed(secrets)
    await using scene = await fixture.scene(name, { spec })
    await fixture.grant(name, spec)
    await fixture.kube.create('/api/v1/namespaces', { metadata: { name: `${name}-there` } })
    for (const namespace of [name, `${name}-there`])
      await fixture.events.put(secrets, 'added', await createSecret(namespace))
    const seen: unknown[] = []
    await scene.widget('w', ({ related }) => {
      seen.push(related['Secret.v1']!.map(({ metadata, ...secret }) => [metadata.namespace, secret['data']]))
      return {}
    })
    await scene.ended('w')
    const moved = await fixture.kube.patch<KubeObject>(
      resourcePath(WIDGETS, name, 'w'),
      { spec: { in: `${name}-there` } },
      'merge',
    )
    await fixture.events.put(WIDGETS, 'modified', moved)
    expect((await scene.run('w')).result).toBe('success')
    expect(seen).toEqual([[], [[`${name}-there`, { a: 'Yg==' }]]])
  })

  it('that is nested too deeply for JSON stops nobody: its metadata are there', async () => {
    await using scene = await fixture.scene('deep', { spec: { related: [WIDGETS] } })
    const half = JSON.parse(`${'{"a":'.repeat(2500)}{}${'}'.repeat(2500)}`) as object
    const path = `/apis/test.fairlead.dev/v1/namespaces/deep/widgets`
    const odd = { apiVersion: 'test.fairlead.dev/v1', kind: 'Widget', metadata: { name: 'odd' }, spec: half }
    await fixture.kube.create(path, odd)
    const deeper = [{ op: 'add', path: `/spec${'/a'.repeat(2500)}/a`, value: half }]
    await fixture.events.put(WIDGETS, 'added', await fixture.kube.patch<KubeObject>(`${path}/odd`, deeper, 'json'))
    let input: RunInput | undefined
    await scene.widget('w', (run) => {
      input = run
      return {}
    })
    expect((await scene.ended('w')).result).toBe('success')
    const found = input?.related['Widget.v1.test.fairlead.dev']?.find(({ metadata }) => metadata.name === 'odd')
    expect(found).toMatchObject({ kind: 'Widget', metadata: { name: 'odd' } })
    expect(found).not.toHaveProperty('spec')
  })

  it('is cluster-scoped where the resource is, and each object is there once', async () => {
    const all = { ...CLASSES, byName: 'spec.class' }
    const related = [all, { ...all, byName: 'spec.other' }, configMaps, { ...configMaps, selector: 'letter=a' }]
    expect(await given('classy', related, { class: 'classy-class', other: 'classy-class' })).toEqual({
      'Class.v1.test.fairlead.dev': ['/classy-class'],
      'ConfigMap.v1': ['classy/a', 'classy/b'],
    })
  })

  it('is not pruned, and costs no request', async () => {
    await using scene = await fixture.scene('kept', { spec: { related: [configMaps], owns: [PODS] } })
    await fixture.kube.create(`/api/v1/namespaces/kept/configmaps`, configMap('theirs'))
    await scene.see(CONFIG_MAPS, 'theirs')
    const requests = await scene.requestsDuring(async () => {
      await scene.widget('w', () => ({ apply: [] }))
      await scene.ended('w')
    })
    expect(requests).toEqual(['POST widgets 201'])
    expect(await scene.get(CONFIG_MAPS, 'theirs')).toBeDefined()
  })

  it('is shown with what the run itself has written, as it is among the owned objects', async () => {
    const related = [{ ...configMaps, selector: 'letter=a' }]
    await using scene = await fixture.scene('lettered', { spec: { related, owns: [CONFIG_MAPS] } })
    const seen: unknown[] = []
    const listed = (objects: readonly KubeObject[] = []) => objects.map(({ metadata }) => [metadata.name, metadata.uid])
    await scene.widget('w', ({ owned, related }) => {
      seen.push([listed(owned['ConfigMap.v1']), listed(related['ConfigMap.v1'])])
      const { metadata, ...page } = configMap('page')
      return { apply: [{ ...page, metadata: { ...metadata, labels: { letter: 'a' } } }] }
    })
    expect((await scene.ended('w')).result).toBe('success')
    const page = [['page', (await scene.get(CONFIG_MAPS, 'page'))?.metadata.uid]]
    expect(seen).toEqual([
      [[], []],
      [page, page],
    ])
  })

  it('gives a run its trace where it has changed last', async () => {
    const traceId = '0af7651916cd43dd8448eb211c80319c'
    const namespace = 'related-trace'
    const related = [{ ...configMaps, selector: 'letter=a' }]
    await using scene = await fixture.scene(namespace, { spec: { related } })
    await stored(configMaps, namespace, 'a', { letter: 'a' })
    await scene.widget('w', () => ({}))
    await scene.ended('w')
    const traces = () =>
      scene.stepsOf('w').flatMap((step) => (step.step === 'finished' && step.traceId ? [step.traceId] : []))
    expect(traces()).not.toContain(traceId)
    const change = { traceparent: `00-${traceId}-b7ad6b7169203331-00` }
    await stored(configMaps, namespace, 'a', { letter: 'a', is: 'new' }, change)
    await scene.run('w')
    expect(traces().at(-1)).toBe(traceId)
  })
})

it('a terminal error that a related object causes makes Ready False, until that object is right', async () => {
  const name = 'blamed'
  await using scene = await fixture.scene(name, { spec: { related: [configMaps] } })
  await stored(configMaps, name, 'settings')
  await scene.widget('w', ({ related }) => {
    const [settings] = related['ConfigMap.v1'] ?? []
    if (settings?.metadata.labels?.['bad'])
      throw new TerminalError('ConfigMap settings is bad', { reason: 'BadSettings' })
    return { conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }] }
  })
  await scene.ended('w')
  expect(await scene.condition('w', 'Ready')).toMatchObject({ status: 'True', reason: 'Up' })
  await stored(configMaps, name, 'settings', { bad: 'true' })
  expect((await scene.run('w')).result).toBe('terminal')
  expect(await scene.condition('w', 'Ready')).toMatchObject({
    status: 'False',
    reason: 'BadSettings',
    message: 'terminal error (Ready was True before): ConfigMap settings is bad',
  })
  await stored(configMaps, name, 'settings')
  expect((await scene.run('w')).result).toBe('success')
  expect(await scene.condition('w', 'Ready')).toMatchObject({ status: 'True', reason: 'Up' })
})
