import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { createConsole, type Data, openData } from '#console'
import { type Access, localAccess, WriteRecord } from '#console/access'
import type { Config } from '#host/config'
import { UsageError } from '#host/exit'
import { createLogger } from '#host/logging'
import { type AbilityOptions, abilitiesOf } from './abilities.ts'
import { openInBrowser } from './browser.ts'

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
