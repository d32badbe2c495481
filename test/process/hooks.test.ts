import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { FunctionInput, KubeObject, RunInput, RunLog } from '#contracts'
import type { Executable } from '#process/executable'
import { verdictOn } from '#process/hooks/config'
import { checkHook, hookFunction } from '#process/hooks/hook'
import { outcomeOf } from '#process/hooks/patches'
import { command } from '../support/command.ts'
import { withEnv } from '../support/env.ts'
import { silent } from '../support/silent.ts'

const EXAMPLE = join(import.meta.dirname, '../../docs/examples/executables/website-hook.sh')

const metadata = { name: 'a', namespace: 'x', uid: 'u', resourceVersion: '1' }
const website: KubeObject = { apiVersion: 'example.com/v1', kind: 'Website', metadata, spec: { html: 'hi' } }
const configMap = (name: string, more: object = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace: 'x', uid: name },
  ...more,
})
const theme = (name: string, header: string): KubeObject =>
  configMap(name, { metadata: { name, namespace: 'x', labels: { app: 'theme' } }, data: { header } })
const inputOf = (more: Partial<RunInput> = {}): RunInput => ({
  object: website,
  owned: { 'ConfigMap.v1': [] },
  related: { 'ConfigMap.v1': [] },
  attempt: 0,
  now: '2030-01-01T00:00:00Z',
  finalizing: false,
  ...more,
})

let dir: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-hooks-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))
const started: Executable[] = []
afterEach(async () => {
  for (const one of started.splice(0)) await one.stop()
})

let hooks = 0
/** A hook in bash with this configuration, for Websites if it is left out. */
async function hook(lines: string, config = 'kubernetes: [{ name: websites, kind: website }]'): Promise<string> {
  const path = join(dir, `hook-${++hooks}.sh`)
  const text = `if [[ \${1:-} == --config ]]; then cat <<'EOF'\nconfigVersion: v1\n${config}\nEOF\nexit; fi\n${lines}`
  await writeFile(path, `#!/usr/bin/env bash\n${text}\n`)
  await chmod(path, 0o755)
  return path
}
async function running(path: string): Promise<(input?: FunctionInput, log?: RunLog) => Promise<unknown>> {
  const one = await hookFunction({ command: path, timeoutSeconds: 60, concurrency: 2, variables: [] }, silent)
  started.push(one)
  return (input = inputOf(), log = silent) => one.invoke(input, { log, signal: new AbortController().signal })
}
/** A hook that answers with its binding context, as an annotation of its object. */
const ECHO = `jq '{ operation: "MergePatch", kind: "Website", name: "a", mergePatch: { metadata: { annotations: { asked: tojson } } } }' \
  "$BINDING_CONTEXT_PATH" >"$KUBERNETES_PATCH_PATH"`
const askedIn = (outcome: unknown): unknown =>
  JSON.parse((outcome as { metadata: { annotations: { asked: string } } }).metadata.annotations.asked)

describe('a configuration', () => {
  it.each([
    ['onStartup: 1', 'onStartup: a run is for an object'],
    ['schedule: [{ crontab: "* * * * *" }]', 'schedule: times are those of objects here'],
    ['kubernetesValidating: [{ name: a.b.c }]', 'kubernetesValidating: keep it in shell-operator'],
    ['kubernetesMutating: [{ name: a.b.c }]', 'kubernetesMutating: keep it in shell-operator'],
    ['kubernetesCustomResourceConversion: [{ crdName: a }]', 'kubernetesCustomResourceConversion: keep it'],
    ['onStart: 1', 'the configuration: Unrecognized key: "onStart"'],
    ['kubernetes: [{ kind: Pod, jqfilter: . }]', 'kubernetes.0: Unrecognized key: "jqfilter"'],
    ['kubernetes: [{ kind: Pod, group: main }]', 'group is one run for all objects'],
    ['kubernetes: [{ kind: Pod, executeHookOnEvent: [Modified] }]', 'has no Added'],
    ['kubernetes: [{ kind: Pod, executeHookOnEvent: [] }]', 'no binding has events'],
    [
      'kubernetes: [{ kind: Pod, namespace: { labelSelector: { matchLabels: { a: b } } } }]',
      'needs labels of namespaces',
    ],
    [
      'kubernetes: [{ name: a, kind: Pod }, { name: b, kind: Node }]',
      'binding b: has events, as kubernetes binding a has',
    ],
    ['kubernetes: [{ kind: Pod }, { kind: Node, executeHookOnEvent: [] }]', 'another binding has this name'],
    ['kubernetes: [{ name: a, kind: Pod, includeSnapshotsFrom: [a] }]', 'names a, which is no other'],
    ['kubernetes: {', 'the configuration: Invalid input'],
  ])('that cannot run is refused by its part: %s', (config, text) => {
    const { config: runs, findings } = verdictOn(`configVersion: v1\n${config}`)
    expect(runs).toBeUndefined()
    const refused = findings.filter(({ is }) => is === 'refused').map((found) => found.text)
    expect(refused.join('\n')).toContain(text)
  })

  it('of version v0 is refused', () => {
    expect(verdictOn('onKubernetesEvent: [{ kind: pod }]').config).toBeUndefined()
  })

  it('is checked without a cluster: the command prints what runs and what differs', async () => {
    const found = await command(['adapt', 'shell-operator', '--check', EXAMPLE])
    expect(found).toMatchObject({ code: 0, stderr: '' })
    expect(found.stdout).toContain('runs     kubernetes binding websites: once for each example.com/v1 Website')
    expect(found.stdout).toContain('runs     kubernetes binding themes: each v1 ConfigMap is in the snapshot')
    expect(found.stdout).toContain('differs  kubernetes binding websites: each run says Added')
    const late = await hook(':', 'schedule: [{ crontab: "* * * * *" }]')
    const refused = await command(['adapt', 'shell-operator', '--check', late])
    expect(refused).toMatchObject({ code: 1, stdout: expect.stringContaining('refused  schedule') as string })
    expect(await command(['serve', 'website', '--hook', late])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('schedule: times are those of objects here') as string,
    })
    const broken = await hook(':', ':')
    await writeFile(broken, '#!/bin/sh\nexit 3\n')
    await expect(checkHook(broken, silent)).rejects.toThrow('has no configuration: ')
  })
})

describe('a hook', () => {
  it('is given the context that shell-operator gives for an event, with its snapshots', async () => {
    const ask = await running(
      await hook(
        ECHO,
        `kubernetes:
- { name: websites, apiVersion: example.com/v1, kind: Website, jqFilter: '.spec.html # a comment', includeSnapshotsFrom: [themes, all] }
- { name: themes, kind: ConfigMap, executeHookOnEvent: [], keepFullObjectsInMemory: false, jqFilter: '.data | .[]', labelSelector: { matchLabels: { app: theme } } }
- { name: all, kind: configmap, executeHookOnEvent: [], fieldSelector: { matchExpressions: [{ field: metadata.name, operator: '!=', value: c }] } }`,
      ),
    )
    const [a, b] = [configMap('a'), theme('b', '<b>')]
    const related = { 'ConfigMap.v1': [b, configMap('c'), theme('d', '<d>')] }
    expect(askedIn(await ask(inputOf({ owned: { 'ConfigMap.v1': [a] }, related })))).toEqual([
      {
        binding: 'websites',
        type: 'Event',
        watchEvent: 'Added',
        object: website,
        filterResult: 'hi',
        snapshots: {
          themes: [{ filterResult: '<b>' }, { filterResult: '<d>' }],
          all: [a, b, theme('d', '<d>')].map((object) => ({ object })),
        },
      },
    ])
    expect(askedIn(await ask())).toMatchObject([{ snapshots: { themes: [], all: [] } }])
  })

  it('is run for an object that goes if it hears of that, and for no object that it does not select', async () => {
    const going = { ...website, metadata: { ...metadata, deletionTimestamp: '2030-01-01T00:00:00Z' } }
    const all = await running(await hook(ECHO))
    expect(askedIn(await all(inputOf({ object: going, finalizing: true })))).toMatchObject([{ watchEvent: 'Deleted' }])
    expect(await all(inputOf({ object: going }))).toEqual({})
    expect(await all(inputOf({ object: null }))).toEqual({})
    const some = await hook(
      ECHO,
      'kubernetes: [{ kind: Website, executeHookOnEvent: [Added], namespace: { nameSelector: { matchNames: [y] } } }]',
    )
    const ask = await running(some)
    expect(await ask(inputOf({ object: going, finalizing: true }))).toEqual({})
    expect(await ask()).toEqual({})
    expect(await ask(inputOf({ object: { ...website, metadata: { ...metadata, namespace: 'y' } } }))).not.toEqual({})
  })

  it('is not called for another kind, or without a kind that it reads', async () => {
    const path = await hook(ECHO, 'kubernetes: [{ name: a, kind: Pod }]')
    await expect((await running(path))()).rejects.toMatchObject({ reason: 'OtherKind' })
    const reads = await hook(
      ECHO,
      'kubernetes: [{ kind: Website, includeSnapshotsFrom: [n] }, { name: n, kind: Node, executeHookOnEvent: [] }]',
    )
    await expect((await running(reads))()).rejects.toMatchObject({ reason: 'UndeclaredKind' })
  })

  it('runs in its folder, has its prints in the log, and leaves no file', async () => {
    const own = await mkdtemp(join(dir, 'tmp-'))
    using _env = withEnv({ TMPDIR: own })
    const ask = await running(
      await hook(
        'pwd; ls -l "$BINDING_CONTEXT_PATH" >"$0.mode"; stat -c %a "$(dirname "$BINDING_CONTEXT_PATH")" >"$0.mode"',
      ),
    )
    const lines: string[] = []
    expect(await ask(inputOf(), { ...silent, info: (_, line) => void lines.push(line) })).toEqual({})
    expect(lines).toEqual([dir])
    expect(await readFile(join(dir, `hook-${hooks}.sh.mode`), 'utf8')).toBe('700\n')
    expect(await readdir(own)).toEqual([])
  })

  it('that fails is repeated, whatever it has written, and leaves no file', async () => {
    const own = await mkdtemp(join(dir, 'tmp-'))
    using _env = withEnv({ TMPDIR: own })
    const ask = await running(await hook(`${ECHO}; echo broken; exit 1`))
    const lines: string[] = []
    await expect(ask(inputOf(), { ...silent, info: (_, line) => void lines.push(line) })).rejects.toMatchObject({
      name: 'Error',
      message: expect.stringContaining('exit code 1') as string,
    })
    expect(lines).toEqual(['broken'])
    expect(await readdir(own)).toEqual([])
  })

  it('that puts a pipe in place of its file is repeated', async () => {
    const ask = await running(await hook('rm "$METRICS_PATH"; mkfifo "$METRICS_PATH"'))
    await expect(ask()).rejects.toThrow('has replaced a file of its answer')
  })

  it('whose jqFilter fails is repeated, and the error quotes no object', async () => {
    const path = await hook(ECHO, `kubernetes: [{ kind: Website, jqFilter: '.spec.html | error' }]`)
    const error = await (await running(path))().catch((cause: Error) => cause)
    expect(String(error)).toContain('jqFilter .spec.html | error failed: jq ended with 5')
    expect(String(error)).not.toContain('hi')
  })
})

const made = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' }, data: { k: 'v' } }
const old = configMap('old', { data: { k: 'v', other: 'w' } })
const going = configMap('going', {
  metadata: { name: 'going', namespace: 'x', deletionTimestamp: '2030-01-01T00:00:00Z' },
})
const own = {
  object: { ...website, status: { ready: 1, phase: 'OPEN', conditions: [] } } as KubeObject,
  owned: { 'ConfigMap.v1': [old, going] },
}
const at = { apiVersion: 'example.com/v1', kind: 'Website', name: 'a' }

describe('what a hook writes', () => {
  it.each<[what: string, operations: object[], outcome: object]>([
    ['nothing', [], {}],
    ['CreateOrUpdate', [{ operation: 'CreateOrUpdate', object: made }], { apply: [old, made] }],
    [
      'CreateOrUpdate of one that exists',
      [{ operation: 'CreateOrUpdate', object: { ...made, metadata: { name: 'old' } } }],
      { apply: [{ ...made, metadata: { name: 'old' } }] },
    ],
    ['Create of an object as text', [{ operation: 'Create', object: JSON.stringify(made) }], { apply: [old, made] }],
    [
      'Create of one that exists',
      [{ operation: 'Create', object: { ...made, metadata: { name: 'old', namespace: 'x' } } }],
      {},
    ],
    [
      'CreateIfNotExists of one that exists',
      [{ operation: 'CreateIfNotExists', object: { ...made, metadata: { name: 'old' } } }],
      {},
    ],
    ['Delete', [{ operation: 'Delete', kind: 'ConfigMap', namespace: 'x', name: 'old' }], { apply: [] }],
    [
      'Delete of one that is gone',
      [{ operation: 'DeleteInBackground', apiVersion: 'v1', kind: 'ConfigMap', name: 'no' }],
      {},
    ],
    ['Delete of its own object', [{ operation: 'Delete', ...at }], { deleteObject: true }],
    [
      'MergePatch of an object that it owns',
      [{ operation: 'MergePatch', kind: 'ConfigMap', name: 'old', mergePatch: { data: { k: 'n', other: null } } }],
      { apply: [{ ...old, data: { k: 'n' } }] },
    ],
    [
      'MergePatch of its status',
      [
        {
          operation: 'MergePatch',
          ...at,
          subresource: '/status',
          mergePatch: { status: { phase: 'SHUT', ready: null } },
        },
      ],
      { status: { phase: 'SHUT' } },
    ],
    [
      'MergePatch of its labels, in two parts',
      [
        { operation: 'MergePatch', ...at, mergePatch: 'metadata: { labels: { a: b } }' },
        { operation: 'MergePatch', ...at, mergePatch: { metadata: { labels: { c: 'd' } } } },
      ],
      { metadata: { labels: { a: 'b', c: 'd' } } },
    ],
    [
      'MergePatch of an object of others',
      [
        {
          operation: 'MergePatch',
          apiVersion: 'v1',
          kind: 'Node',
          name: 'n',
          ignoreMissingObject: true,
          mergePatch: { metadata: { labels: { a: 'b' } }, spec: { unschedulable: true } },
        },
      ],
      {
        patch: [
          {
            apiVersion: 'v1',
            kind: 'Node',
            metadata: { name: 'n', labels: { a: 'b' } },
            spec: { unschedulable: true },
          },
        ],
      },
    ],
  ])('becomes an outcome, and what it does not name stays: %s', (_, operations, outcome) => {
    for (const patches of [
      operations.map((one) => JSON.stringify(one, null, 2)).join('\n'),
      operations.map((one) => `---\n${JSON.stringify(one)}\n`).join(''),
    ])
      expect(outcomeOf({ patches, metrics: '' }, own)).toEqual(outcome)
  })

  it.each<[operation: object, message: string]>([
    [
      { operation: 'JQPatch', kind: 'ConfigMap', name: 'old', jqFilter: '.' },
      'JQPatch of ConfigMap old, which is not offered',
    ],
    [{ operation: 'JSONPatch', kind: 'ConfigMap', name: 'old', jsonPatch: [] }, 'JSONPatch of ConfigMap old, which'],
    [{ operation: 'DeleteNonCascading', kind: 'ConfigMap', name: 'old' }, 'DeleteNonCascading of ConfigMap old, which'],
    [
      { operation: 'Delete', apiVersion: 'v1', kind: 'Node', name: 'n' },
      'Delete of Node n, which is not offered: a function deletes what it owns',
    ],
    [{ operation: 'Delete', kind: 'Node', name: 'n' }, 'Delete of Node n without apiVersion'],
    [{ operation: 'Destroy', kind: 'Node', name: 'n' }, 'operation 1.operation: '],
    [
      { operation: 'Create', object: { ...made, metadata: { generateName: 'a-' } } },
      'operation 1.object.metadata.name: ',
    ],
    [{ operation: 'Create', object: '{' }, 'operation 1.object: is no YAML'],
    [
      { operation: 'MergePatch', ...at, mergePatch: { spec: { html: '' } } },
      'MergePatch of Website a with spec, which',
    ],
    [{ operation: 'MergePatch', ...at, mergePatch: { status: { conditions: [] } } }, 'with status.conditions'],
    [{ operation: 'MergePatch', ...at, mergePatch: { metadata: { finalizers: [] } } }, 'with metadata.finalizers'],
    [{ operation: 'MergePatch', ...at, mergePatch: { metadata: { labels: { a: null } } } }, 'with null'],
    [
      {
        operation: 'MergePatch',
        apiVersion: 'v1',
        kind: 'Node',
        name: 'n',
        mergePatch: { metadata: { labels: { a: null } } },
      },
      'with null',
    ],
    [{ operation: 'MergePatch', ...at, subresource: '/scale', mergePatch: {} }, 'operation 1.subresource: '],
    [{ operation: 'MergePatch', ...at, ignoreHookError: true, mergePatch: {} }, 'Unrecognized key: "ignoreHookError"'],
  ])('is refused by its name, and nothing is written: %j', (operation, message) => {
    const patches = `${JSON.stringify({ operation: 'Create', object: made })}\n${JSON.stringify(operation)}`
    const refused = {
      name: 'TerminalError',
      reason: 'PatchNotOffered',
      message: expect.stringContaining(message.replace('operation 1', 'operation 2')) as string,
    }
    expect(() => outcomeOf({ patches, metrics: '' }, own)).toThrow(expect.objectContaining(refused) as Error)
  })

  it('is refused if it is no JSON and no YAML, without a quotation', () => {
    const error = (() => {
      try {
        return outcomeOf({ patches: 'hunter2: [', metrics: '' }, own)
      } catch (cause) {
        return cause
      }
    })()
    expect(String(error)).toContain('neither JSON nor YAML')
    expect(String(error)).not.toContain('hunter2')
  })

  it('keeps apart what has the same name in two groups', () => {
    const [one, other] = ['a.example.com/v1', 'b.example.com/v1'].map((apiVersion) => ({
      ...old,
      apiVersion,
      kind: 'Cart',
    }))
    const owned = { 'Cart.v1.a.example.com': [one], 'Cart.v1.b.example.com': [other] } as FunctionInput['owned']
    const remove = (more: object) => JSON.stringify({ operation: 'Delete', kind: 'Cart', name: 'old', ...more })
    expect(outcomeOf({ patches: remove({ apiVersion: one?.apiVersion }), metrics: '' }, { ...own, owned })).toEqual({
      apply: [other],
    })
    expect(() => outcomeOf({ patches: remove({}), metrics: '' }, { ...own, owned })).toThrow('without apiVersion')
  })

  it('sets metrics, and is refused for others', () => {
    const report = (metrics: object) => outcomeOf({ patches: '', metrics: JSON.stringify(metrics) }, own)
    const labels = { size: 'large' }
    expect(report({ name: 'pages', action: 'set', value: 3, labels })).toEqual({
      metrics: [{ name: 'pages', value: 3, labels }],
    })
    expect(report({ name: 'pages', set: 3 })).toEqual({ metrics: [{ name: 'pages', value: 3, labels: {} }] })
    expect(() => report({ name: 'pages', action: 'add', value: 3 })).toThrow(
      'metric 1.action: is not offered: write set',
    )
    expect(() => report({ name: 'pages', action: 'set' })).toThrow('metric 1: has no value')
  })
})
