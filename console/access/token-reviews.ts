import { hash } from 'node:crypto'
import { type KubeClient, resourcePath } from '#kube'
import { BoundedMap, TokenBucket } from '#primitives'
import { type Claims, claimsOf } from './bearer.ts'
import { reasonOf } from './reason.ts'
import { TimedCache } from './timed-cache.ts'
import type { Person, Refusal } from './types.ts'

const REVIEWS = { group: 'authentication.k8s.io', version: 'v1', resource: 'tokenreviews' }
const TIMEOUT_MS = 5000

const REMEMBERED = 1000
/** Tokens that the API server has accepted in their last review. */
const ACCEPTED = 10_000
const ADDRESSES = 10_000
/**
 * Reviews of other tokens, of one remote address and of all together: whoever reaches the console can send any number
 * of such tokens. Accepted tokens are reviewed again beside them.
 */
const REVIEWS_OF_ADDRESS = { perSecond: 20, burst: 100 }
const REVIEWS_OF_ALL = { perSecond: 100, burst: 500 }

/** A person as the API server knows one: with what some authorizers need to know beside name and groups. */
export interface ReviewedPerson extends Person {
  readonly uid?: string
  readonly extra?: Readonly<Record<string, readonly string[]>>
}

export interface TokenReviewsOptions {
  kube: KubeClient
  /** One of these has to be the token's. Empty: those of the API server. */
  audiences: readonly string[]
  /** How long an answer of the API server counts. */
  cacheMs: number
  /** Milliseconds of a clock that only goes forward. */
  now: () => number
  /** The time, to which tokens expire. */
  date: () => Date
}

interface TokenReview {
  status?: {
    authenticated?: boolean
    audiences?: string[]
    user?: { username?: string; uid?: string; groups?: string[]; extra?: Record<string, string[]> }
  }
}

/** The people of tokens, from reviews of the API server. */
export class TokenReviews {
  readonly #options: TokenReviewsOptions
  /** Two, so that tokens of strangers take no place of those that were accepted. */
  readonly #ofAccepted: TimedCache<Person | Refusal>
  readonly #ofOthers: TimedCache<Person | Refusal>
  readonly #accepted = new BoundedMap<string, true>(ACCEPTED)
  readonly #rate: TokenBucket
  readonly #rates = new BoundedMap<string, TokenBucket>(ADDRESSES)

  constructor(options: TokenReviewsOptions) {
    this.#options = options
    const { cacheMs: ms, now } = options
    this.#ofAccepted = new TimedCache({ entries: REMEMBERED, ms, now })
    this.#ofOthers = new TimedCache({ entries: REMEMBERED, ms, now })
    this.#rate = new TokenBucket(REVIEWS_OF_ALL, now)
  }

  /** `address`: the remote address of the request. */
  async personOf(token: string, address: string): Promise<Person | Refusal> {
    const claims = claimsOf(token)
    if (this.#isExpired(claims)) return EXPIRED
    // The token itself is not kept.
    const key = hash('sha256', token, 'base64url')
    const isAccepted = this.#accepted.has(key)
    const known = this.#ofAccepted.known(key) ?? this.#ofOthers.known(key)
    if (known === undefined && !isAccepted && this.#isBusy(address)) return BUSY
    const cache = isAccepted ? this.#ofAccepted : this.#ofOthers
    try {
      const found = await (known ?? cache.get(key, () => this.#review(token, claims)))
      if ('status' in found) this.#accepted.delete(key)
      else this.#accepted.set(key, true)
      return found
    } catch (error) {
      return { status: 403, message: `it cannot be checked who you are: ${reasonOf(error)}` }
    }
  }

  #isBusy(address: string): boolean {
    const network = networkOf(address)
    const rate = this.#rates.get(network) ?? new TokenBucket(REVIEWS_OF_ADDRESS, this.#options.now)
    // The addresses that asked last are remembered.
    this.#rates.set(network, rate)
    return 'returnMs' in rate.takeWithin(0) || 'returnMs' in this.#rate.takeWithin(0)
  }

  async #review(token: string, claims: Claims): Promise<Person | Refusal> {
    const { kube, audiences } = this.#options
    const spec = { token, ...(audiences.length > 0 && { audiences }) }
    const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenReview', spec }
    const { status = {} } = await kube.create<TokenReview>(resourcePath(REVIEWS), review, { timeoutMs: TIMEOUT_MS })
    const { authenticated, user, audiences: shared = [] } = status
    if (authenticated !== true || user?.username === undefined) return this.#refusal(claims)
    // A server that knows nothing of audiences answers without any.
    if (audiences.length > 0 && !audiences.some((audience) => shared.includes(audience))) return this.#refusal(claims)
    const { username: name, groups = [], uid, extra } = user
    const person: ReviewedPerson = { name, groups, ...(uid !== undefined && { uid }), ...(extra && { extra }) }
    return person
  }

  #refusal(claims: Claims): Refusal {
    const { audiences } = this.#options
    if (this.#isExpired(claims)) return EXPIRED
    const wanted = audiences.length === 0 || claims.audiences?.some((audience) => audiences.includes(audience))
    if (claims.audiences !== undefined && !wanted)
      return unauthorized(
        `the token is for ${claims.audiences.join(', ')}, and has to be for ${audiences.join(' or ')}`,
      )
    return unauthorized('the API server does not accept the token: get a new one, for this cluster')
  }

  #isExpired({ expiresAt = Infinity }: Claims): boolean {
    return expiresAt <= this.#options.date().getTime()
  }
}

const unauthorized = (message: string): Refusal => ({ status: 401, message })
const EXPIRED = unauthorized('the token has expired: sign in again, or get a new one')
const BUSY: Refusal = { status: 503, message: 'too many tokens are being checked: try again in a second' }

/** Returns the address, or the first 64 bits of an address of IPv6: one host may have all that begin with them. */
export function networkOf(address: string): string {
  if (address.includes('.') || !address.includes(':')) return address.replace(/^.*:/, '')
  const [head = '', tail] = address.split('::')
  const before = head === '' ? [] : head.split(':')
  const after = tail === undefined || tail === '' ? [] : tail.split(':')
  const zeros = tail === undefined ? [] : Array.from({ length: 8 - before.length - after.length }, () => '0')
  return [...before, ...zeros, ...after].slice(0, 4).join(':')
}
