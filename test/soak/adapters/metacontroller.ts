import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { type Contest, createdOn, refOfKind } from './contest.ts'
import { documentsOf, EXAMPLES, filesOf, NAMESPACES, subjectsOf } from './examples.ts'
import { Hooks } from './hooks.ts'
import type { Wanted } from './judge.ts'
import type { Made } from './load.ts'
import type { Serving } from './sides.ts'
import type { Ref, Watched } from './watched.ts'

/** A share of the calls of hooks fails. */
const FAILING = 0.02

interface Rule {
  apiVersion: string
  resource: string
  updateStrategy?: { method?: string }
}
type Controller = KubeObject & {
  spec: {
    parentResource?: Rule
    resources?: Rule[]
    childResources?: Rule[]
    attachments?: Rule[]
    hooks: Record<string, { webhook: { url: string } }>
  }
}

const refOf = ({ apiVersion, resource }: Rule): Ref => {
  const [version = '', group = ''] = apiVersion.split('/').reverse()
  return { group, version, resource }
}

/** Starts the hooks of the examples of a clone of Metacontroller, and makes their definitions and controllers. */
export async function examplesOf(
  clone: string,
  kube: KubeClient,
  watched: Watched,
  fails: () => number,
): Promise<Contest & AsyncDisposable> {
  let isCalm = false
  const hooks = new Hooks(() => !isCalm && fails() < FAILING)
  const controllers: Controller[] = []
  const makes = documentsOf(join(clone, 'manifests/production/metacontroller-crds-v1.yaml'))
  for (const one of makes) await createdOn(kube, one)
  for (const name of [...NAMESPACES, 'omega'])
    await createdOn(kube, {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name, labels: NAMESPACES.includes(name) ? { propagate: 'true' } : {} },
    })
  for (const example of EXAMPLES) {
    const files = filesOf(clone, example)
    for (const one of files.definitions) await createdOn(kube, one)
    const url = await hooks.serve(example.folder, files.hook ?? written(files.text))
    for (const one of files.controllers as Controller[]) {
      for (const { webhook } of Object.values(one.spec.hooks)) webhook.url = `${url}${new URL(webhook.url).pathname}`
      const annotations: Record<string, string> = example.related ? { 'fairlead.dev/related': example.related } : {}
      const controller = { ...one, metadata: { ...one.metadata, annotations } }
      await createdOn(kube, controller)
      controllers.push(controller)
    }
  }
  const rulesOf = ({ spec }: Controller) => spec.childResources ?? spec.attachments ?? []
  const children = controllers.flatMap(rulesOf).map(refOf)
  const subjects = EXAMPLES.flatMap(subjectsOf)
  for (const ref of [...children, ...subjects.map((one) => one.ref), refOfKind('Namespace')]) await watched.follow(ref)
  const controllerOf = ({ subject: { ref } }: Made): Controller => {
    const isOf = (rule: Rule) => JSON.stringify(refOf(rule)) === JSON.stringify(ref)
    const found = controllers.find(({ spec }) => [spec.parentResource ?? [], spec.resources ?? []].flat().some(isOf))
    if (found === undefined) throw new Error(`no controller of ${ref.resource}`)
    return found
  }
  const callOf = (made: Made) => hooks.calls.get(`${controllerOf(made).metadata.name}/${made.uid}`)
  const wantedOf = (made: Made, parent: KubeObject, servedBy: Serving): Wanted | string => {
    const call = callOf(made)
    if (call === undefined) return 'its hook has not been asked'
    const { request, answer } = call
    const { generation } = parent.metadata
    const asked = request.parent ?? request.object
    if (asked?.metadata.generation !== generation) return `its hook was not asked about generation ${generation}`
    const stale = Object.values(request.related ?? {})
      .flatMap((group) => Object.values(group))
      .find(
        ({ metadata, kind }) =>
          watched.of(refOfKind(kind)).find((one) => one.metadata.uid === metadata.uid)?.metadata.resourceVersion !==
          metadata.resourceVersion,
      )
    if (stale !== undefined) return `its hook was not asked about the latest ${stale.kind} ${stale.metadata.name}`
    const kept = rulesOf(controllerOf(made)).filter(
      ({ updateStrategy: { method = 'OnDelete' } = {} }) =>
        method === 'OnDelete' || (servedBy === 'other' && method.startsWith('Rolling')),
    )
    const mayDiffer = ({ kind }: KubeObject) => kept.some(({ resource }) => resource === refOfKind(kind).resource)
    const answered = (answer.children ?? answer.attachments ?? []).map((one) => ({ ...one, mayDiffer: mayDiffer(one) }))
    // Some definitions do not store it.
    const { observedGeneration } = (parent['status'] ?? {}) as { observedGeneration?: number }
    const status = { ...answer.status, ...(observedGeneration !== undefined && { observedGeneration: generation }) }
    return { children: answered, status, labels: answer.labels }
  }
  return {
    functions: ['--adapter', 'metacontroller'],
    subjects,
    children,
    wantedOf,
    calm: (isIt) => {
      isCalm = isIt
    },
    // A rollout that Metacontroller has begun goes on. A dry run cannot follow it to the end, since nothing is deleted.
    mayReplace: ({ kind }, servedBy) => servedBy === 'other' && kind === 'Pod',
    mayChange: ({ reconciler }) => reconciler === 'composite-catset-controller',
    licenceOf: (made) => ({
      replacements: ({ kind }) => {
        const rule = rulesOf(controllerOf(made)).find(({ resource }) => resource === refOfKind(kind).resource)
        return rule?.updateStrategy?.method?.endsWith('Recreate') ? made.edits : 0
      },
      isDropped: (child) => {
        const { answer } = callOf(made) ?? {}
        const named = answer?.children ?? answer?.attachments
        return named !== undefined && !named.some(({ metadata: { name } }) => name === child.metadata.name)
      },
    }),
    disturb: async (random) => {
      const { folder } = EXAMPLES[Math.floor(EXAMPLES.length * random())] ?? { folder: 'catset' }
      await hooks.restart(folder)
      return `kill -9 of the hook of ${folder}`
    },
    figures: () => [
      ['calls of hooks', String(hooks.asked)],
      ['of them failed', String(hooks.failed)],
    ],
    [Symbol.asyncDispose]: () => hooks[Symbol.asyncDispose](),
  }
}

/** A hook that is in a manifest, as a file. */
function written(text = ''): string {
  const file = join(mkdtempSync(join(tmpdir(), 'fl-hook-')), 'sync.py')
  writeFileSync(file, text)
  return file
}

/** Volumes for claims of the examples: nobody provides any here. */
export async function makeVolumes(kube: KubeClient, count: number): Promise<void> {
  for (let index = 0; index < count; index++)
    await kube.create(resourcePath({ group: '', version: 'v1', resource: 'persistentvolumes' }), {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: `by-hand-${index}` },
      spec: {
        accessModes: ['ReadWriteOnce'],
        capacity: { storage: '1Gi' },
        storageClassName: 'by-hand',
        persistentVolumeReclaimPolicy: 'Retain',
        hostPath: { path: '/data' },
      },
    })
}
