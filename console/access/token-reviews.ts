import { hash } from 'node:crypto'
import { type KubeClient, resourcePath } from '#kube'
import { TokenBucket } from '#primitives'
import { type Claims, claimsOf } from './bearer.ts'
import { reasonOf } from './reason.ts'
import { TimedCache } from './timed-cache.ts'
import type { Person, Refusal } from './types.ts'

const REVIEWS = { group: 'authentication.k8s.io', version: 'v1', resource: 'tokenreviews' }
const TIMEOUT_MS = 5000

const REMEMBERED = 1000
/** Reviews of tokens that are not known: whoever reaches the console can send any number of them. */
const REVIEWS_AT_MOST = { perSecond: 20, burst: 100 }

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
  readonly #cache: TimedCache<Person | Refusal>
  readonly #rate: TokenBucket

  constructor(options: TokenReviewsOptions) {
    this.#options = options
    this.#cache = new TimedCache({ entries: REMEMBERED, ms: options.cacheMs, now: options.now })
    this.#rate = new TokenBucket(REVIEWS_AT_MOST, options.now)
  }

  async personOf(token: string): Promise<Person | Refusal> {
    const claims = claimsOf(token)
    if (this.#isExpired(claims)) return EXPIRED
    // The token itself is not kept.
    const key = hash('sha256', token, 'base64url')
    const isKnown = this.#cache.known(key) !== undefined
    if (!isKnown && 'returnMs' in this.#rate.takeWithin(0)) return BUSY
    try {
      return await this.#cache.get(key, () => this.#review(token, claims))
    } catch (error) {
      return { status: 403, message: `it cannot be checked who you are: ${reasonOf(error)}` }
    }
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
const BUSY: Refusal = { status: 403, message: 'too many tokens are being checked: try again in a second' }
