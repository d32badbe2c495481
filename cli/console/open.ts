import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { type Abilities, createConsole, type Data, openData } from '#console'
import { type Access, localAccess, WriteRecord } from '#console/access'
import type { Config } from '#host/config'
import { UsageError } from '#host/exit'
import { createLogger } from '#host/logging'
import { commandJson } from './command-json.ts'
import { publishStored } from './publish-stored.ts'

export interface OpenOptions {
  /** Default: 8484, or a free port. */
  port?: number
  allowWrites: boolean
  /** Modules of functions, for previews and replays. Empty turns both off. */
  function: readonly string[]
  /** The environment of commands that run functions. */
  env: NodeJS.ProcessEnv
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

/** Opens the console on this machine. The token in its address grants access. */
export async function openConsole(settings: Config, options: OpenOptions): Promise<OpenConsole> {
  const log = await createLogger(settings)
  const quiet = await createLogger({ ...settings, LOG_LEVEL: 'error' })
  const data = openData(settings, quiet)
  let port = 0
  const writes = recording(data, log)
  const access = localAccess({ port: () => port, record: writes.record })
  const abilities = abilitiesOf(settings, options)
  const server = createServer(
    createConsole({ data, access, cookieFor: (request) => access.cookieFor(request), abilities, log }),
  )
  server.maxConnections = CONNECTIONS
  try {
    port = await listening(server, options.port)
  } catch (error) {
    await data.close()
    throw error
  }
  const address = `http://${HOST}:${port}${access.path}`
  return {
    address,
    openBrowser: () => openInBrowser(address),
    async [Symbol.asyncDispose]() {
      server.close()
      server.closeAllConnections()
      await writes.flush()
      await data.close()
    },
  }
}

/** Records writes as Events, with the API server that the pages read. */
function recording(data: Data, log: Logger): { record: Access['record']; flush: () => Promise<void> } {
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

function abilitiesOf(settings: Config, { allowWrites, function: files, env }: OpenOptions): Abilities {
  const publish: Abilities['publish'] = (ref, namespace, name) => publishStored(settings, ref, namespace, name)
  if (files.length === 0) return { writes: allowWrites, publish }
  // Each preview runs in a process of its own: a blocking function does not stop the console, and the module is loaded
  // in its current version.
  const { context, KUBECONFIG, NATS_URL, FAIRLEAD_PREFIX } = settings
  const given = { kubeconfig: KUBECONFIG, context, nats: [NATS_URL].flat().join(','), prefix: FAIRLEAD_PREFIX }
  const globals = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}`, value]))
  const output = ['-o', 'json', ...files.flatMap((file) => ['-f', file])]
  const run = (...args: string[]) => commandJson([...globals, ...args, ...output], env)
  return {
    writes: allowWrites,
    publish,
    preview: (reconciler, namespace, name) =>
      run('run', reconciler, name, ...(namespace === undefined ? [] : ['-n', namespace]), '--dry-run'),
    replay: (sequence) => run('replay', String(sequence)),
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

/** Opens a browser. Without one, the user opens the printed address. */
function openInBrowser(address: string): void {
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open']
  const child = spawn(program, [...args, address], { stdio: 'ignore', detached: true })
  child.once('error', () => undefined)
  child.unref()
}
