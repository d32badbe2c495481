import { randomBytes, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { userInfo } from 'node:os'
import type { Access, Person, Refusal } from './types.ts'

/** Access from the machine that the console runs on: by a token in the address that the command prints. */
export interface LocalAccess extends Access {
  /** To be opened: `/?token=…`. */
  readonly path: string
  /** What makes the request's browser known from now on; undefined: it brings no right token. */
  cookieFor(request: IncomingMessage): string | undefined
}

interface LocalOptions {
  /** Where it listens, known once it does. */
  port: () => number
}

const LOOPBACK = ['127.0.0.1', 'localhost', '[::1]']

/**
 * Every request names this machine as its `Host`: a page of another name that resolves to 127.0.0.1 reaches nothing. A
 * page of another origin reaches nothing either, and the cookie is not sent with its requests.
 */
export function localAccess({ port }: LocalOptions): LocalAccess {
  const token = randomBytes(24).toString('base64url')
  const person: Person = { name: userInfo().username, groups: [] }
  const isToken = (given: string): boolean => {
    const [one, other] = [Buffer.from(given), Buffer.from(token)]
    return one.length === other.length && timingSafeEqual(one, other)
  }
  const cookie = () => `fairlead_console_${port()}`
  return {
    path: `/?token=${token}`,
    cookieFor(request) {
      const { searchParams } = new URL(request.url ?? '/', 'http://console')
      if (foreign(request, port()) || !isToken(searchParams.get('token') ?? '')) return undefined
      return `${cookie()}=${token}; HttpOnly; SameSite=Strict; Path=/`
    },
    async authenticate(request): Promise<Person | Refusal> {
      const refused = foreign(request, port())
      if (refused !== undefined) return { status: 403, message: refused }
      if (tokensOf(request, cookie()).some(isToken)) return person
      return {
        status: 401,
        message: 'open the address that fairlead console has printed: its token is missing or wrong',
      }
    },
    // The user of the command has the kubeconfig and the NATS of the console.
    may: async () => true,
  }
}

function foreign({ headers }: IncomingMessage, port: number): string | undefined {
  const hosts = LOOPBACK.map((host) => `${host}:${port}`)
  if (!hosts.includes(headers.host ?? '')) return 'this console answers only requests to 127.0.0.1 and localhost'
  const { origin } = headers
  if (origin !== undefined && !hosts.some((host) => origin === `http://${host}`))
    return 'this console answers no requests of pages of another origin'
  return undefined
}

function tokensOf({ headers }: IncomingMessage, cookie: string): string[] {
  const cookies = (headers.cookie ?? '').split(/;\s*/).flatMap((one) => {
    const [name, value = ''] = one.split('=', 2)
    return name === cookie ? [value] : []
  })
  const [, bearer] = /^Bearer (.+)$/i.exec(headers.authorization ?? '') ?? []
  return bearer === undefined ? cookies : [...cookies, bearer]
}
