import type { RunLog } from '#contracts'
import type { KubeClient } from '#kube'
import { AccessReviews } from './access-reviews.ts'
import { bearerToken } from './bearer.ts'
import { reasonOf } from './reason.ts'
import { originRefusal } from './request-origin.ts'
import { TokenReviews } from './token-reviews.ts'
import type { Access, Person, Refusal } from './types.ts'
import { WriteRecord } from './write-record.ts'

/** How long an answer of the API server counts: a right that is taken away lasts for so long. */
const CACHE_MS = 10_000

export interface ClusterAccessOptions {
  /** The client of the console's account. */
  kube: KubeClient
  /** Names by which the console is reached, beside those of `kubectl port-forward`. Without ports, lower case. */
  hosts: readonly string[]
  /** A token has to be for one of these. Empty: for the API server. */
  audiences: readonly string[]
  /** Names this process, at most 128 characters. */
  instance: string
  log: RunLog
  /** Milliseconds of a clock that only goes forward. */
  now?: () => number
  date?: () => Date
}

export interface ClusterAccess extends Access {
  /** Resolves when the Events of what has been recorded are written or have failed. */
  flush(): Promise<void>
}

/** The API server could not be asked whether a person may do something: it is denied. */
export class AccessUnknownError extends Error {
  override readonly name = 'AccessUnknownError'
}

/** Returns the access in a cluster, by TokenReviews and SubjectAccessReviews. The console allows only what the API server allows. */
export function createClusterAccess({
  kube,
  hosts,
  audiences,
  instance,
  log,
  now = () => performance.now(),
  date = () => new Date(),
}: ClusterAccessOptions): ClusterAccess {
  const shared = { kube, cacheMs: CACHE_MS, now }
  const tokens = new TokenReviews({ ...shared, audiences, date })
  const limited = ({ name }: Person) =>
    log.debug({ person: name }, 'a person needs more reviews of rights than the console makes: the rest is denied')
  const rights = new AccessReviews({ ...shared, limited })
  const writes = new WriteRecord({ kube, instance, log, date })

  return {
    async authenticate(request): Promise<Person | Refusal> {
      const refusal = originRefusal(request, hosts)
      if (refusal !== undefined) return refusal
      const token = bearerToken(request.headers.authorization)
      return token === undefined ? NO_TOKEN : tokens.personOf(token, request.socket.remoteAddress ?? '')
    },
    async may(person, action) {
      try {
        return await rights.may(person, action)
      } catch (cause) {
        throw new AccessUnknownError(`it cannot be checked what you may see and do: ${reasonOf(cause)}`, { cause })
      }
    },
    record: (person, what, about) => writes.record(person, what, about),
    flush: () => writes.flush(),
  }
}

const NO_TOKEN: Refusal = { status: 401, message: 'there is no token: the console needs Authorization: Bearer TOKEN' }
