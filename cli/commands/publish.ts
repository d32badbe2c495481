import { type KubeObject, namespacedName, type ResourceRef } from '#contracts'
import {
  type CloudEvent,
  type ContentMode,
  type HttpMessage,
  MAX_OBJECT_BYTES,
  type ObjectEvent,
  openEventStore,
  publicationOf,
  referenceRule,
  toHttp,
  type Verb,
} from '#events'
import { type KubeClient, resourcePath, servedResources } from '#kube'
import type { Config } from '#process/config'
import { UsageError, untilStopped } from '#process/exit'
import { clusterId, openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import { openJetStream, prefixOf } from '#process/nats'
import { quoted } from '#process/shell'
import type { CommandContext, Print, Target } from '../options.ts'
import { openSink } from './events.ts'
import { guessedRef, imagined, isUsuallyNamespaced, objectsIn, resourceNamed, served } from './manifests.ts'
import { existing } from './one-object.ts'

export interface PublishOptions {
  file?: string
  namespace?: string
  to?: Target
  type?: Verb
  mode: ContentMode
  dryRun?: true
  curl?: true
  offline?: true
}

/** The objects to publish, and their cluster. */
interface PublishSource {
  cluster: string
  objects: { ref: ResourceRef; object: KubeObject }[]
  /** True if the API server has these versions: only those may be stored in EVENTS. */
  areStored: boolean
}

interface PublishedEvent {
  ref: ResourceRef
  verb: Verb
  object: KubeObject
  event: ObjectEvent
}

const NO_CLUSTER = '00000000-0000-0000-0000-000000000000'
const FIELD_MANAGER = 'fairlead-publish'
const LOCAL_FUNCTION = 'http://localhost:8080'

export async function publish(
  kind: string | undefined,
  name: string | undefined,
  options: PublishOptions,
  { config, print }: CommandContext,
): Promise<void> {
  const settings = await config()
  const found = await find(settings, kind, name, options)
  const events = eventsOf(found, settings, options)
  // The schema of the official SDK judges each event.
  const { CloudEvent } = await import('cloudevents')
  for (const { event } of events) void new CloudEvent<KubeObject>(event)
  if (options.dryRun) return print(events.map(({ event }) => JSON.stringify(event, null, 2)).join('\n'))
  if (options.curl) return print(events.map(({ event }) => curlOf(event, options)).join('\n\n'))
  if (options.to) return send(events, options.to, settings, options.mode, print)
  await store(found, events, settings, print)
}

async function find(settings: Config, kind: string | undefined, name: string | undefined, options: PublishOptions) {
  const { file, namespace, offline } = options
  if ((file === undefined) === (kind === undefined || name === undefined))
    throw new UsageError('give an object to publish: KIND and NAME of an object in the cluster, or --file')
  if (offline) {
    if (file === undefined) throw new UsageError('--offline asks no API server: give --file')
    const objects = (await objectsIn(file)).map((object) => ({
      ref: guessedRef(object),
      object: imagined(isUsuallyNamespaced(object) ? inNamespace(object, namespace ?? 'default') : object),
    }))
    return { cluster: NO_CLUSTER, objects, areStored: false }
  }
  const given = file === undefined ? undefined : await objectsIn(file)
  await using kube = await openKube(settings)
  const cluster = await clusterId(kube)
  if (given) return { cluster, objects: await inCluster(kube, given, namespace), areStored: false }
  const ref = resourceNamed(kind ?? '', await servedResources(kube))
  const where = { namespace: ref.namespaced ? (namespace ?? 'default') : undefined, name: name ?? '' }
  return { cluster, objects: [{ ref, object: await existing(kube, ref, where) }], areStored: true }
}

/** Returns the objects after a dry run of the API server, which adds defaults, validates, and stores nothing. */
async function inCluster(
  kube: KubeClient,
  objects: KubeObject[],
  namespace: string | undefined,
): Promise<PublishSource['objects']> {
  const resources = await servedResources(kube)
  return Promise.all(
    objects.map(async (given) => {
      const ref = served(given, resources)
      const object = ref.namespaced ? inNamespace(given, namespace ?? 'default') : given
      if (object.metadata.resourceVersion !== undefined) return { ref, object }
      const path = resourcePath(ref, object.metadata.namespace, object.metadata.name)
      const options = { fieldManager: FIELD_MANAGER, force: true, dryRun: true }
      return { ref, object: imagined(await kube.apply(path, object, options)) }
    }),
  )
}

const inNamespace = (object: KubeObject, namespace: string): KubeObject => ({
  ...object,
  metadata: { namespace, ...object.metadata },
})

function eventsOf(
  { cluster, objects, areStored }: PublishSource,
  settings: Config,
  options: PublishOptions,
): PublishedEvent[] {
  const rules = { isReferenceOnly: referenceRule(settings.FAIRLEAD_REFERENCE_ONLY), maxObjectBytes: MAX_OBJECT_BYTES }
  return objects.map(({ ref, object }) => {
    const verb = options.type ?? (areStored && wasChanged(object) ? 'modified' : 'added')
    const { event } = publicationOf({ cluster, ref, verb, object, now: new Date() }, rules)
    return { ref, verb, object, event }
  })
}

/**
 * Whether the object was updated after its creation, from its managedFields, whose times are whole seconds
 * (metav1.ManagedFieldsEntry).
 */
function wasChanged({ metadata }: KubeObject): boolean {
  const writers = metadata['managedFields'] as { time?: string; subresource?: string }[] | undefined
  return !writers?.every(({ time, subresource }) => time === metadata.creationTimestamp && subresource === undefined)
}

function curlOf(event: CloudEvent, { to, mode }: PublishOptions): string {
  if (to?.kind === 'nats') throw new UsageError('curl speaks no NATS: give an http:// address with --to')
  return curlCommand(to?.url ?? LOCAL_FUNCTION, toHttp(event, mode))
}

async function send(
  events: PublishedEvent[],
  to: Target,
  settings: Config,
  mode: ContentMode,
  print: Print,
): Promise<void> {
  const { signal } = untilStopped()
  await using sink = await openSink(to, mode, settings, 1)
  for (const { event } of events) print(`${event.id} to ${sink.name}: ${await sink.send(event, signal)}`)
}

async function store(
  { cluster, areStored }: PublishSource,
  published: PublishedEvent[],
  settings: Config,
  print: Print,
): Promise<void> {
  if (!areStored)
    throw new UsageError(
      'EVENTS has only what the API server has: apply the file and the bridge publishes it, or name another place with --to',
    )
  const living = published.find(({ verb }) => verb === 'deleted')
  if (living)
    throw new UsageError(
      `EVENTS has all that the API server has, and that has ${called(living.object)}: delete it and the bridge publishes that, or name another place with --to`,
    )
  const said = await storeEvents(settings, cluster, published)
  for (const [index, { event }] of published.entries()) print(`${event.id}: ${said[index]}`)
}

const called = ({ kind, metadata: { namespace, name } }: KubeObject): string =>
  `${kind} ${namespacedName({ namespace, name })}`

/** Returns the request as a command for a POSIX shell. */
function curlCommand(url: string, { headers, body }: HttpMessage): string {
  const lines = [
    `curl --fail-with-body -sS -X POST ${quoted(url)}`,
    ...Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    // curl would read a leading `@` as the name of a file, but JSON never begins with it.
    `--data-binary ${quoted(Buffer.from(body).toString())}`,
  ]
  return lines.join(' \\\n  ')
}

/** Stores events as the bridge does: an older version never replaces a newer one. Returns the result for each event. */
export async function storeEvents(
  settings: Config,
  cluster: string,
  published: readonly { ref: ResourceRef; verb: Verb; object: KubeObject }[],
): Promise<string[]> {
  await using js = await openJetStream(settings, 'publish')
  const log = await createLogger(settings)
  const referenceOnly = settings.FAIRLEAD_REFERENCE_ONLY
  const events = await openEventStore(js, { ...prefixOf(settings), cluster, referenceOnly, log })
  const said: string[] = []
  for (const { ref, verb, object } of published) {
    const { outcome, sequence } = await events.put(ref, verb, object)
    said.push(`${SAID[outcome]} in ${events.stream} at ${sequence}`)
  }
  return said
}

const SAID = {
  stored: 'stored',
  present: 'was there already',
  newer: 'not stored, a newer version is',
  deadLettered: 'not stored, but dead-lettered',
} as const
