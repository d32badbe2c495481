import { type Command, Option } from 'commander'
import type { KubeObject, ResourceRef } from '#contracts'
import {
  type CloudEvent,
  type ContentMode,
  MAX_OBJECT_BYTES,
  type ObjectEvent,
  openEventStore,
  publicationOf,
  referenceRule,
  toHttp,
  type Verb,
} from '#events'
import { type KubeClient, resourcePath, servedResources } from '#kube'
import type { Config } from '../config.ts'
import { clusterId, openJetStream, openKube } from '../connections.ts'
import { curlCommand } from '../events/curl.ts'
import { guessedRef, imagined, isUsuallyNamespaced, objectsIn, resourceNamed, served } from '../events/objects.ts'
import { openSink, type Target } from '../events/sink.ts'
import { UsageError } from '../exit.ts'
import { createLogger } from '../logging.ts'
import type { Print, Surroundings } from '../options.ts'
import { untilStopped } from '../signals.ts'
import { modeOption, target } from './events.ts'

interface PublishOptions {
  file?: string
  namespace?: string
  to?: Target
  type?: Verb
  mode: ContentMode
  dryRun?: true
  curl?: true
  offline?: true
}

/** What to publish, and of which cluster. */
interface Found {
  cluster: string
  objects: { ref: ResourceRef; object: KubeObject }[]
  /** The API server has these versions: EVENTS may take them. */
  areStored: boolean
}

interface Made {
  ref: ResourceRef
  verb: Verb
  object: KubeObject
  event: ObjectEvent
}

const NO_CLUSTER = '00000000-0000-0000-0000-000000000000'
const FIELD_MANAGER = 'fairlead-publish'
const LOCAL_FUNCTION = 'http://localhost:8080'

const HELP = `
What is published is what the bridge would publish:
  fairlead publish at example-at                           the object in the cluster, into EVENTS
  fairlead publish pod web-0 --to http://localhost:8080    … to a function, or whatever takes CloudEvents
  fairlead publish -f at.yaml --to nats:trial.ats          a manifest as the API server would have it
  fairlead publish -f at.yaml --offline --curl             the same as a command, without any server`

export function publishCommand(program: Command, { config, print }: Pick<Surroundings, 'config' | 'print'>): void {
  program
    .command('publish')
    .description('the event that the bridge would publish of an object, to NATS or over HTTP')
    .argument('[kind]', 'as kubectl takes it')
    .argument('[name]', 'of the object')
    .option('-f, --file <file>', 'YAML or JSON instead of an object in the cluster; - is standard input')
    .option('-n, --namespace <name>', 'of the object (default: that of the file, else default)')
    .option('--to <target>', 'http://…, https://… or nats:SUBJECT (default: EVENTS)', target)
    .addOption(
      new Option(
        '--type <verb>',
        'what happened to it (default: added if nobody changed it since its creation)',
      ).choices(['added', 'modified', 'deleted']),
    )
    .addOption(modeOption())
    .addOption(new Option('--dry-run', 'print the event instead').conflicts('curl'))
    .option('--curl', 'print a curl command instead')
    .option('--offline', 'ask no API server: guess the resource of a kind, make uid and version up')
    .addHelpText('after', HELP)
    .action(async (kind: string | undefined, name: string | undefined, options: PublishOptions) => {
      const settings = config()
      const found = await find(settings, kind, name, options)
      const made = eventsOf(found, settings, options)
      if (options.dryRun) return print(made.map(({ event }) => JSON.stringify(event, null, 2)).join('\n'))
      if (options.curl) return print(made.map(({ event }) => curlOf(event, options)).join('\n\n'))
      if (options.to) return send(made, options.to, settings, options.mode, print)
      await store(found, made, settings, print)
    })
}

async function find(settings: Config, kind: string | undefined, name: string | undefined, options: PublishOptions) {
  const { file, namespace, offline } = options
  const { FAIRLEAD_CLUSTER: named } = settings
  if ((file === undefined) === (kind === undefined || name === undefined))
    throw new UsageError('say what to publish: KIND and NAME of an object in the cluster, or --file')
  if (offline) {
    if (file === undefined) throw new UsageError('--offline asks no API server: give --file')
    const objects = (await objectsIn(file)).map((object) => ({
      ref: guessedRef(object),
      object: imagined(isUsuallyNamespaced(object) ? inNamespace(object, namespace ?? 'default') : object),
    }))
    return { cluster: named ?? NO_CLUSTER, objects, areStored: false }
  }
  const given = file === undefined ? undefined : await objectsIn(file)
  await using kube = await openKube(settings)
  const cluster = named ?? (await clusterId(kube))
  if (given) return { cluster, objects: await inCluster(kube, given, namespace), areStored: false }
  const ref = resourceNamed(kind ?? '', await servedResources(kube))
  const path = resourcePath(ref, ref.namespaced ? (namespace ?? 'default') : undefined, name)
  return { cluster, objects: [{ ref, object: await kube.get(path) }], areStored: true }
}

/** As the API server would store them: it fills in and checks, and stores nothing. */
async function inCluster(
  kube: KubeClient,
  objects: KubeObject[],
  namespace: string | undefined,
): Promise<Found['objects']> {
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

function eventsOf({ cluster, objects, areStored }: Found, settings: Config, options: PublishOptions): Made[] {
  const rules = { isReferenceOnly: referenceRule(settings.FAIRLEAD_REFERENCE_ONLY), maxObjectBytes: MAX_OBJECT_BYTES }
  return objects.map(({ ref, object }) => {
    const verb = options.type ?? (areStored && wasChanged(object) ? 'modified' : 'added')
    const { event } = publicationOf({ cluster, ref, verb, object, now: new Date() }, rules)
    return { ref, verb, object, event }
  })
}

/** As far as the API server remembers: by whom and when, in whole seconds (metav1.ManagedFieldsEntry). */
function wasChanged({ metadata }: KubeObject): boolean {
  const writers = metadata['managedFields'] as { time?: string; subresource?: string }[] | undefined
  return !writers?.every(({ time, subresource }) => time === metadata.creationTimestamp && subresource === undefined)
}

function curlOf(event: CloudEvent, { to, mode }: PublishOptions): string {
  if (to?.kind === 'nats') throw new UsageError('curl speaks no NATS: give an http:// address with --to')
  return curlCommand(to?.url ?? LOCAL_FUNCTION, toHttp(event, mode))
}

async function send(made: Made[], to: Target, settings: Config, mode: ContentMode, print: Print): Promise<void> {
  const { signal } = untilStopped()
  await using sink = await openSink(to, mode, settings, 1)
  for (const { event } of made) print(`${event.id} to ${sink.name}: ${await sink.send(event, signal)}`)
}

/** As the bridge does, guarded: an older version never replaces a newer one. */
async function store({ cluster, areStored }: Found, made: Made[], settings: Config, print: Print): Promise<void> {
  if (!areStored)
    throw new UsageError(
      'EVENTS has only what the API server has: apply the file and the bridge publishes it, or name another place with --to',
    )
  await using js = await openJetStream(settings, 'publish')
  const { FAIRLEAD_PREFIX: prefix, FAIRLEAD_REFERENCE_ONLY: referenceOnly } = settings
  const log = createLogger(settings)
  const events = await openEventStore(js, { cluster, referenceOnly, log, ...(prefix !== undefined && { prefix }) })
  for (const { ref, verb, object, event } of made) {
    const { outcome, sequence } = await events.put(ref, verb, object)
    print(`${event.id}: ${SAID[outcome]} in ${events.stream} at ${sequence}`)
  }
}

const SAID = { stored: 'stored', present: 'was there already', newer: 'not stored, a newer version is' } as const
