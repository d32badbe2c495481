import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { Logger } from 'pino'
import { type Abilities, createConsole, type Data, openData, type ShownCluster } from '#console'
import { localAccess, type RecordWrite, WriteRecord } from '#console/access'
import type { ResourceRef } from '#contracts'
import { resourcePath } from '#kube'
import { configOf } from '#process/clusters'
import type { Config } from '#process/config'
import { UsageError, untilStopped } from '#process/exit'
import { clusterId, openKube } from '#process/kube'
import { allClusters, chosenConfig } from '#process/listed-clusters'
import { createLogger } from '#process/logging'
import type { CommandContext } from '../options.ts'
import { storeEvents } from './publish.ts'

export interface ConsoleFlags {
  port?: number
  open: boolean
  allowWrites: boolean
  function: string[]
}

/** Serves the console until the process is stopped. */
export async function serveConsole(flags: ConsoleFlags, { config, print }: CommandContext): Promise<void> {
  const settings = await shownBy(await config('any'))
  const { signal } = untilStopped()
  const env = { ...process.env }
  await using served = await openConsole(settings, { ...flags, env })
  print(`The console is at ${served.address}`)
  print(flags.allowWrites ? 'Writes are on.' : 'It only reads. --allow-writes also lets it act on the queue.')
  if (flags.open && process.stdout.isTTY) served.openBrowser()
  if (!signal.aborted) await once(signal, 'abort')
}

/** Returns the configuration of each cluster that the console shows: of the one that is named, or of all of the file. */
async function shownBy(config: Config): Promise<[ConsoleSettings, ...ConsoleSettings[]]> {
  const { FAIRLEAD_CLUSTERS: file, cluster } = config
  if (file === undefined) return [config]
  if (cluster !== undefined) return [{ ...(await chosenConfig(config, cluster)), listed: { file, labels: {} } }]
  const [first, ...others] = (await allClusters(config, file)).map((entry) => ({
    ...configOf(config, entry),
    FAIRLEAD_CLUSTERS: undefined,
    listed: { file, labels: entry.labels },
  }))
  if (first === undefined) throw new UsageError(`${file} lists no cluster: add one`)
  return [first, ...others]
}

/** The configuration for a cluster, and how it is listed if a file of clusters was given. */
type ConsoleSettings = Config & { listed?: { file: string; labels: Record<string, string> } }

export interface OpenOptions extends AbilityOptions {
  /** Default: 8484, or a free port. */
  port?: number
}

interface OpenConsole extends AsyncDisposable {
  /** The URL with the token. */
  address: string
  openBrowser(): void
}

const PORT = 8484
/** The limit of concurrent connections. */
const CONNECTIONS = 256
/** The loopback address: other machines cannot connect. */
const HOST = '127.0.0.1'

/** Opens the console of these clusters on this machine. The token in its address grants access. */
export async function openConsole(
  [first, ...others]: readonly [ConsoleSettings, ...ConsoleSettings[]],
  options: OpenOptions,
): Promise<OpenConsole> {
  const log = await createLogger(first)
  const quiet = await createLogger({ ...first, LOG_LEVEL: 'error' })
  let port = 0
  const access = localAccess({ port: () => port })
  const show = (settings: ConsoleSettings) => {
    const data = openData(settings, quiet)
    const { record, flush } = recording(data, log)
    const abilities = abilitiesOf(settings, options)
    return { name: settings.cluster, labels: settings.listed?.labels ?? {}, data, abilities, record, flush }
  }
  const clusters: [Shown, ...Shown[]] = [show(first), ...others.map(show)]
  const close = async (): Promise<void> => {
    await Promise.all(clusters.map((one) => one.flush()))
    await Promise.all(clusters.map((one) => one.data.close()))
  }
  const server = createServer(
    createConsole({ clusters, access, cookieFor: (request) => access.cookieFor(request), log }),
  )
  server.maxConnections = CONNECTIONS
  try {
    port = await listening(server, options.port)
  } catch (error) {
    await close()
    throw error
  }
  const address = `http://${HOST}:${port}${access.path}`
  return {
    address,
    openBrowser: () => openInBrowser(address),
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
      await close()
    },
  }
}

/** `flush` resolves when the Events of writes are written or have failed. */
type Shown = ShownCluster & { flush: () => Promise<void> }

/** Records writes as Events, with the API server that the pages read. */
function recording(data: Data, log: Logger): { record: RecordWrite; flush: () => Promise<void> } {
  let writes: WriteRecord | undefined
  return {
    async record(person, what, about) {
      const away = await data.kubeAway()
      if (away !== undefined)
        return log.warn({ person: person.name, what, object: about, away }, 'write by the console')
      writes ??= new WriteRecord({ kube: await data.kube(), instance: hostname(), log, date: () => new Date() })
      await writes.record(person, what, about)
    },
    flush: async () => writes?.flush(),
  }
}

async function listening(server: Server, wanted: number | undefined): Promise<number> {
  for (const port of wanted === undefined ? [PORT, 0] : [wanted]) {
    try {
      server.listen(port, HOST)
      await once(server, 'listening')
      return (server.address() as AddressInfo).port
    } catch (cause) {
      if (wanted === undefined && port !== 0) continue
      throw new UsageError(`cannot listen on port ${port}: ${(cause as Error).message}; --port names another one`, {
        cause,
      })
    }
  }
  throw new TypeError('no port was tried')
}

const OPENERS: Partial<Record<NodeJS.Platform, [string, ...string[]]>> = {
  darwin: ['open'],
  win32: ['cmd', '/c', 'start', ''],
}

/** Opens the address in a browser, without waiting. A failure is ignored: the user opens the printed address. */
export function openInBrowser(address: string, env: NodeJS.ProcessEnv = process.env): void {
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open']
  const child = spawn(program, [...args, address], { stdio: 'ignore', detached: true, env })
  child.once('error', () => undefined)
  child.unref()
}

export interface AbilityOptions {
  allowWrites: boolean
  /** Modules of functions, for previews and replays. Empty turns both off. */
  function: readonly string[]
  /** The environment of commands that run functions. */
  env: NodeJS.ProcessEnv
}

/** Returns what the console of this machine can do besides reading. */
export function abilitiesOf(
  settings: ConsoleSettings,
  { allowWrites, function: files, env }: AbilityOptions,
): Abilities {
  const publish: Abilities['publish'] = (ref, namespace, name) => publishStored(settings, ref, namespace, name)
  if (files.length === 0) return { writes: allowWrites, publish }
  // Each preview runs in a process of its own: a blocking function does not stop the console, and the module is loaded
  // in its current version.
  const { context, cluster, listed, KUBECONFIG, NATS_URL: nats, FAIRLEAD_PREFIX } = settings
  const given = listed
    ? { clusters: listed.file, cluster, nats }
    : { kubeconfig: KUBECONFIG, context, nats, prefix: FAIRLEAD_PREFIX }
  const globals = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}`, value]))
  const output = ['-o', 'json', ...files.flatMap((file) => ['-f', file])]
  // A prefix that is given contains the shard.
  const ownEnv = listed ? env : { ...env, FAIRLEAD_SHARD: '' }
  const run = (...args: string[]) => commandJson([...globals, ...args, ...output], ownEnv)
  return {
    writes: allowWrites,
    publish,
    preview: (reconciler, namespace, name) =>
      run('run', reconciler, name, ...(namespace === undefined ? [] : ['-n', namespace]), '--dry-run'),
    replay: (sequence) => run('replay', String(sequence)),
  }
}

const BIN = fileURLToPath(new URL('../bin.js', import.meta.url))
const ENDS_WITHIN_MS = 60_000
const MOST_BYTES = 32 * 2 ** 20

/** Runs a command of `fairlead` with `-o json`, and returns its output, even after an exit code other than 0. */
function commandJson(args: readonly string[], env: NodeJS.ProcessEnv): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  const options = { env, timeout: ENDS_WITHIN_MS, maxBuffer: MOST_BYTES }
  execFile(process.execPath, [BIN, ...args], options, (error, stdout, stderr) => {
    try {
      resolve(JSON.parse(stdout))
    } catch {
      const said = stderr
        .trim()
        .split('\n')
        .at(-1)
        ?.replace(/^fairlead: /, '')
      reject(new UsageError(said || error?.message || 'the command has printed nothing'))
    }
  })
  return promise
}

/** Stores the event of an object that the API server has, as a bridge would. Returns a description of the result. */
async function publishStored(
  settings: Config,
  ref: ResourceRef,
  namespace: string | undefined,
  name: string,
): Promise<string> {
  await using kube = await openKube(settings)
  const object = await kube.get(resourcePath(ref, namespace, name))
  const [said = ''] = await storeEvents(settings, await clusterId(kube), [{ ref, verb: 'modified', object }])
  return said
}
