import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseAllDocuments } from 'yaml'
import { BoundedMap, Budget } from '#primitives'
import type { KubeObject } from '#sdk'
import { type Chart, draws, readChart } from './chart.ts'
import { drawnIn, type RenderedObject } from './drawn.ts'

export interface Rendering {
  /** The program, or its path. */
  helm: string
  kubeVersion?: string | undefined
  apiVersions: readonly string[]
  /** `--set-string` of each override. */
  overrides: Readonly<Record<string, string>>
}

export interface Release {
  name: string
  namespace: string
  values: unknown
}

/** What a chart makes of values. It is shared: nobody may change it. */
export interface Rendered {
  objects: readonly RenderedObject[]
  /** Empty if the chart has none. */
  notes: string
}

/** The chart cannot be rendered with these values. The message is that of Helm, or names the object. */
export class RenderError extends Error {
  override readonly name = 'RenderError'
}

/** The values of all charts of this process that were rendered last, and what they have made, in characters of YAML. */
const CACHE_SIZE = 64 * 1024 * 1024
const cache = new BoundedMap<string, Rendered & { size: number }>(CACHE_SIZE, ({ size }) => size)
/** A process of Helm uses one processor and 60 ms for a small chart. */
const places = new Budget(availableParallelism())
const LARGEST_OUTPUT = 64 * 1024 * 1024

/**
 * Returns the objects of a chart for these values: those of the cache, or of a process of `helm template`, which gets no
 * credentials. Rejects with a RenderError.
 */
export async function render(
  chart: Chart,
  release: Release,
  rendering: Rendering,
  signal?: AbortSignal,
): Promise<Rendered> {
  const key = createHash('sha256')
    .update(JSON.stringify([chart.digest, release, rendering]))
    .digest('hex')
  const known = cache.get(key)
  if (known !== undefined) {
    cache.set(key, known)
    return known
  }
  using _ = await places.acquire(1, signal)
  const template = (zone?: string) =>
    call(templateArguments(chart, release, rendering), release, rendering, { signal, zone })
  const text = await template()
  const made = objectsOf(text, release)
  const others: MadeObject[][] = []
  // Without the pause, all would read the same second.
  if (chart.readsClock) await sleep(1000, undefined, { signal })
  for (const zone of zonesOf(chart, release, rendering)) others.push(objectsOf(await template(zone), release))
  const notes = chart.hasNotes ? await notesOf(chart, release, rendering, signal) : ''
  const { digest } = await readChart(chart.folder)
  // What is written while it is read is a part of a chart, and what is missing in it would be deleted.
  if (digest !== chart.digest)
    throw new Error(`the chart ${chart.folder} has changed since this process started: start the process again`)
  const rendered = { objects: made.map((one) => withDrawn(one, others, chart)), notes, size: text.length }
  cache.set(key, rendered)
  return rendered
}

/** No day is the same in all of these and in the zone of this machine. */
const ZONES = ['Etc/GMT-14', 'Etc/GMT+12']
/** A value of two, such as that of `randInt 0 2`, is the same in all renderings once in 256 charts. */
const RENDERINGS_OF_FEW = 8

/** Returns the time zones of the renderings that are compared with the first one; undefined: that of this machine. */
function zonesOf(chart: Chart, { values }: Release, { overrides }: Rendering): readonly (string | undefined)[] {
  // A template may be in the values too.
  const given = draws(JSON.stringify([values, overrides]))
  if (!chart.isRandom && !chart.readsClock && !given) return []
  const zones = chart.readsClock || given ? ZONES : [undefined]
  return [...zones, ...Array<undefined>(chart.drawsFew ? RENDERINGS_OF_FEW - zones.length : 0)]
}

function withDrawn({ object, template }: MadeObject, others: readonly MadeObject[][], chart: Chart): RenderedObject {
  const again = others.map((made) => made.find((one) => isSame(one.object, object))?.object)
  if (again.includes(undefined))
    throw new RenderError(
      `${titleOf(object)} has a name that differs in each rendering, so that each run would make another one: give the chart a fixed name`,
    )
  const drawn = drawnIn(object, again as KubeObject[], chart.keyed?.includes(template) ?? true)
  return { object, drawn, template }
}

const common = ({ folder }: Chart, { name, namespace }: Release, { overrides }: Rendering): string[] => [
  name,
  folder,
  '--namespace',
  namespace,
  '--values',
  '-',
  ...Object.entries(overrides).flatMap(([path, value]) => ['--set-string', `${path}=${value}`]),
]

const templateArguments = (chart: Chart, release: Release, rendering: Rendering): string[] => [
  'template',
  ...common(chart, release, rendering),
  '--skip-tests',
  ...(rendering.kubeVersion === undefined ? [] : ['--kube-version', rendering.kubeVersion]),
  ...(rendering.apiVersions.length === 0 ? [] : ['--api-versions', rendering.apiVersions.join(',')]),
]

/** Before Helm 4, only a command that reads the cluster has the notes: then there are none. */
async function notesOf(chart: Chart, release: Release, rendering: Rendering, signal?: AbortSignal): Promise<string> {
  const args = [
    'install',
    ...common(chart, release, rendering),
    '--dry-run=client',
    '--hide-secret',
    '--output',
    'json',
  ]
  try {
    const { info } = JSON.parse(await call(args, release, rendering, { signal })) as { info?: { notes?: string } }
    return info?.notes?.trim() ?? ''
  } catch (error) {
    if (error instanceof RenderError) return ''
    throw error
  }
}

/** Resolves with the standard output of helm. Values come by its standard input, so that they are in no file. */
export async function call(
  args: readonly string[],
  { values }: Pick<Release, 'values'>,
  { helm, overrides }: Pick<Rendering, 'helm' | 'overrides'>,
  { signal, zone }: { signal?: AbortSignal | undefined; zone?: string | undefined } = {},
): Promise<string> {
  const home = join(tmpdir(), 'fairlead-helm')
  const homes = ['CONFIG', 'CACHE', 'DATA'].map((kind) => [`HELM_${kind}_HOME`, home])
  const env = {
    PATH: process.env['PATH'],
    KUBECONFIG: join(home, 'none'),
    ...(zone !== undefined && { TZ: zone }),
    ...Object.fromEntries(homes),
  }
  return new Promise((resolve, reject) => {
    // Helm goes on with a template after SIGTERM.
    const options = { env, maxBuffer: LARGEST_OUTPUT, killSignal: 'SIGKILL', ...(signal && { signal }) } as const
    const child = execFile(helm, args, options, (error, stdout, stderr) => {
      if (error === null) return resolve(stdout)
      if (error.code === 'ENOENT')
        return reject(new Error(`there is no program ${helm}: install Helm, or give its path in "helm"`))
      if (signal?.aborted) return reject(signal.reason as Error)
      if (typeof error.code === 'number') return reject(new RenderError(hiding(told(stderr), overrides)))
      // Not the message, which has all arguments, and so the overrides.
      reject(new Error(`${helm} has ended with ${error.signal ?? error.code}`))
    })
    // A program that ends before it has read its input is told by its exit code.
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(JSON.stringify(values))
  })
}

/** Leaves out the overrides, which may come from the environment: Helm shows values that a schema refuses. */
const hiding = (text: string, overrides: Rendering['overrides']): string =>
  Object.entries(overrides).reduce(
    (shown, [path, value]) => (value.length < 4 ? shown : shown.replaceAll(value, `(override of ${path})`)),
    text,
  )

const LONGEST_MESSAGE = 2000

const told = (stderr: string): string => {
  const lines = stderr.split('\n').filter((line) => !/^(level=|time=|WARNING:|coalesce\.go|\d{4}\/)/.test(line))
  return lines.join('\n').replace('Error: ', '').trim().slice(0, LONGEST_MESSAGE) || 'helm has failed without a message'
}

interface MadeObject {
  object: KubeObject
  /** The path of the template in the chart. */
  template: string
}

/** Parses objects as Kubernetes does, with the items of lists. */
function objectsOf(text: string, { namespace }: Release): MadeObject[] {
  const documents = parseAllDocuments(text, {
    version: '1.1',
    // As in Kubernetes, the last one counts.
    uniqueKeys: false,
    customTags: (tags) => tags.filter((tag) => typeof tag === 'string' || !isTime(tag)),
  })
  return documents.flatMap((document) => {
    const [error] = document.errors
    if (error !== undefined) throw new RenderError(`a template does not make YAML: ${error.message.split('\n')[0]}`)
    // Helm names the template in a comment: `# Source: web/templates/secret.yaml`.
    const [, template = ''] = /^ *Source: [^/\n]+\/(.+)$/m.exec(document.contents?.commentBefore ?? '') ?? []
    return itemsOf(document.toJS() as unknown).map((one) => ({ object: demandObject(one, namespace), template }))
  })
}

/** In Kubernetes, a time and a number with colons are texts. */
const isTime = ({ tag, format }: { tag: string; format?: string }): boolean =>
  tag === 'tag:yaml.org,2002:timestamp' || format === 'TIME'

function itemsOf(document: unknown): unknown[] {
  if (document === null || document === undefined) return []
  const { kind, items } = document as { kind?: unknown; items?: unknown }
  return typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items) ? items.flatMap(itemsOf) : [document]
}

function demandObject(value: unknown, namespace: string): KubeObject {
  const { apiVersion, kind, metadata } = (value ?? {}) as Partial<KubeObject>
  if (typeof apiVersion !== 'string' || typeof kind !== 'string')
    throw new RenderError('a template makes a document without apiVersion and kind: a chart makes objects')
  if (typeof metadata?.name !== 'string')
    throw new RenderError(`a template makes a ${kind} without metadata.name: generateName is not offered`)
  if (metadata.namespace !== undefined && metadata.namespace !== namespace)
    throw new RenderError(
      `${kind} ${metadata.namespace}/${metadata.name} is outside of namespace ${namespace}: objects in other namespaces are not offered`,
    )
  const { namespace: _, ...others } = metadata
  return withData(withoutNulls({ ...(value as KubeObject), metadata: others }) as KubeObject)
}

/** Helm writes what `nodeSelector:` without a value makes; for Kubernetes it is a field that is left out. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  if (typeof value !== 'object' || value === null) return value
  const fields = Object.entries(value).filter(([, field]) => field !== null && field !== undefined)
  return Object.fromEntries(fields.map(([name, field]) => [name, withoutNulls(field)]))
}

/** The API server stores texts of a Secret as data: so they can be compared. It refuses what is no text. */
function withData(object: KubeObject): KubeObject {
  const { stringData, ...secret } = object as KubeObject & { stringData?: Record<string, unknown> }
  if (object.kind !== 'Secret' || object.apiVersion !== 'v1' || stringData === undefined) return object
  const texts: Record<string, string> = {}
  for (const [name, text] of Object.entries(stringData)) {
    if (typeof text !== 'string') return object
    texts[name] = Buffer.from(text).toString('base64')
  }
  return { ...secret, data: { ...(secret['data'] as object), ...texts } }
}

export const titleOf = ({ kind, metadata: { name } }: KubeObject): string => `${kind} ${name}`

export const isSame = (one: KubeObject, other: KubeObject): boolean =>
  one.apiVersion === other.apiVersion && one.kind === other.kind && one.metadata.name === other.metadata.name
