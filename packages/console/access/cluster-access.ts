import { hash } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { LRUCache } from 'lru-cache'
import type { RunLog } from '#contracts'
import { ApiConnectionError, ApiError, type KubeClient, resourcePath } from '#kube'
import { pause, TokenBucket } from '#primitives'
import type { Access, Action, Person, RecordWrite, Refusal } from './types.ts'
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
  record: RecordWrite
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
    async may(person, action, unchecked = () => undefined) {
      try {
        return await rights.may(person, action, unchecked)
      } catch (cause) {
        throw new AccessUnknownError(`it cannot be checked what you may see and do: ${reasonOf(cause)}`, { cause })
      }
    },
    record: (person, what, about) => writes.record(person, what, about),
    flush: () => writes.flush(),
  }
}

const NO_TOKEN: Refusal = { status: 401, message: 'there is no token: the console needs Authorization: Bearer TOKEN' }

/** The hosts of `kubectl port-forward`. */
const ALWAYS = ['localhost', '127.0.0.1', '[::1]']

/**
 * Refuses a request to another host than those of the console, and one that a page of another host sends. Ports do not count
 * among the hosts: `kubectl port-forward` chooses one.
 */
export function originRefusal(
  { headers }: Pick<IncomingMessage, 'headers'>,
  hosts: readonly string[],
): Refusal | undefined {
  const { host = '', origin } = headers
  const name = urlOf(`http://${host}`)?.hostname
  if (name === undefined || ![...ALWAYS, ...hosts].includes(name))
    return refused(`${JSON.stringify(host)} is not a host of this console: name it in FAIRLEAD_CONSOLE_HOSTS`)
  if (origin !== undefined && !isSame(origin, host))
    return refused(`the page of ${JSON.stringify(origin)} may not use this console`)
  if (headers['sec-fetch-site'] === 'cross-site' && headers['sec-fetch-mode'] !== 'navigate')
    return refused('a page of another site may not use this console')
  return undefined
}

const urlOf = (text: string): URL | undefined => URL.parse(text) ?? undefined

/** The console does not know by which protocol the page came: a proxy may have ended TLS. */
function isSame(origin: string, host: string): boolean {
  const page = urlOf(origin)
  return page !== undefined && page.host !== '' && page.host === urlOf(`${page.protocol}//${host}`)?.host
}

const refused = (message: string): Refusal => ({ status: 403, message })

const REVIEWS = { group: 'authorization.k8s.io', version: 'v1', resource: 'subjectaccessreviews' }
const TIMEOUT_MS = 5000

const REMEMBERED = 20_000
const PEOPLE = 1000
/** Reviews for one person. */
const REVIEWS_AT_MOST = { perSecond: 50, burst: 200 }
/** A single question comes through also behind those of a long list. */
const PATIENCE_MS = 500

interface AccessReviewsOptions {
  kube: KubeClient
  /** How long an answer of the API server counts. */
  cacheMs: number
  /** Milliseconds of a clock that only goes forward. */
  now: () => number
  /** Called when a person asks for more reviews than the console makes: actions without a review are denied. */
  limited: (person: Person) => void
}

/** The person asks for more reviews than the console makes. */
class NoTurnError extends Error {}

/** The rights of people, from reviews of the API server. */
class AccessReviews {
  readonly #options: AccessReviewsOptions
  readonly #cache: TimedCache<boolean>
  /** Of the people who asked last. */
  readonly #rates: LRUCache<string, TokenBucket>

  constructor(options: AccessReviewsOptions) {
    this.#options = options
    this.#cache = new TimedCache({ entries: REMEMBERED, ms: options.cacheMs, now: options.now })
    const memoMethod = () => new TokenBucket(REVIEWS_AT_MOST, options.now)
    this.#rates = new LRUCache({ max: PEOPLE, memoMethod })
  }

  /** Rejects where the API server cannot be asked. */
  async may(person: ReviewedPerson, action: Action, unchecked: () => void): Promise<boolean> {
    for (const question of questionsOf(action)) if (await this.#isAllowed(person, question, unchecked)) return true
    return false
  }

  async #isAllowed(person: ReviewedPerson, question: Action, unchecked: () => void): Promise<boolean> {
    const { name, groups, uid, extra } = person
    const { verb, group, resource, namespace, name: object } = question
    const who = JSON.stringify([name, groups, uid, extra])
    const key = JSON.stringify([who, verb, group, resource, namespace, object])
    try {
      return await this.#cache.get(key, () => this.#reviewInTurn(person, who, question))
    } catch (error) {
      if (!(error instanceof NoTurnError)) throw error
      unchecked()
      return false
    }
  }

  async #reviewInTurn(person: ReviewedPerson, who: string, question: Action): Promise<boolean> {
    const turn = this.#rates.memo(who).takeWithin(PATIENCE_MS)
    if ('returnMs' in turn) {
      this.#options.limited(person)
      throw new NoTurnError()
    }
    if (turn.waitMs > 0) await pause(turn.waitMs)
    return this.#review(person, question)
  }

  async #review({ name, groups, uid, extra }: ReviewedPerson, question: Action): Promise<boolean> {
    const { verb, group, resource: asked, namespace, name: object } = question
    const [resource = '', subresource] = asked.split('/')
    const resourceAttributes = { verb, group, resource, subresource, namespace, name: object }
    const spec = { user: name, groups, uid, extra, resourceAttributes }
    const review = { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview', spec }
    const { status } = await this.#options.kube.create<{ status: { allowed: boolean; denied?: boolean } }>(
      resourcePath(REVIEWS),
      review,
      { timeoutMs: TIMEOUT_MS },
    )
    return status.allowed && status.denied !== true
  }
}

/**
 * What is asked, one after the other: the right to all objects of the kind comes before the right to a single one, so that a list
 * of many objects takes few questions. A person who may list a kind sees all of its objects, and so may read each of them.
 */
function questionsOf({ verb, group, resource, namespace, name }: Action): Action[] {
  const verbs = verb === 'get' ? ['list', 'get'] : [verb]
  const places = namespace === undefined ? [{}] : [{}, { namespace }]
  const general = places.flatMap((place) => verbs.map((one) => ({ verb: one, group, resource, ...place })))
  return name === undefined ? general : [...general, { verb, group, resource, ...places.at(-1), name }]
}

const TOKEN_REVIEWS = { group: 'authentication.k8s.io', version: 'v1', resource: 'tokenreviews' }
const TOKEN_TIMEOUT_MS = 5000

const TOKENS_REMEMBERED = 1000
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
interface ReviewedPerson extends Person {
  readonly uid?: string
  readonly extra?: Readonly<Record<string, readonly string[]>>
}

interface TokenReviewsOptions {
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
class TokenReviews {
  readonly #options: TokenReviewsOptions
  /** Two, so that tokens of strangers take no place of those that were accepted. */
  readonly #ofAccepted: TimedCache<Person | Refusal>
  readonly #ofOthers: TimedCache<Person | Refusal>
  readonly #accepted = new LRUCache<string, true>({ max: ACCEPTED })
  readonly #rate: TokenBucket
  /** Of the networks that asked last. */
  readonly #rates: LRUCache<string, TokenBucket>

  constructor(options: TokenReviewsOptions) {
    this.#options = options
    const { cacheMs: ms, now } = options
    this.#ofAccepted = new TimedCache({ entries: TOKENS_REMEMBERED, ms, now })
    this.#ofOthers = new TimedCache({ entries: TOKENS_REMEMBERED, ms, now })
    this.#rate = new TokenBucket(REVIEWS_OF_ALL, now)
    this.#rates = new LRUCache({ max: ADDRESSES, memoMethod: () => new TokenBucket(REVIEWS_OF_ADDRESS, now) })
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
    const rate = this.#rates.memo(networkOf(address))
    return 'returnMs' in rate.takeWithin(0) || 'returnMs' in this.#rate.takeWithin(0)
  }

  async #review(token: string, claims: Claims): Promise<Person | Refusal> {
    const { kube, audiences } = this.#options
    const spec = { token, ...(audiences.length > 0 && { audiences }) }
    const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenReview', spec }
    const { status = {} } = await kube.create<TokenReview>(resourcePath(TOKEN_REVIEWS), review, {
      timeoutMs: TOKEN_TIMEOUT_MS,
    })
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

/** Longer ones are refused before anything is asked: nodejs accepts headers of 16 KiB. */
const MAX_LENGTH = 12_288

/** The token of `Authorization: Bearer TOKEN`; undefined: there is none. */
export function bearerToken(header: string | undefined): string | undefined {
  const [, token] = /^Bearer +([\w.~+/=-]+) *$/i.exec(header ?? '') ?? []
  return token === undefined || token.length > MAX_LENGTH ? undefined : token
}

export interface Claims {
  /** Milliseconds since 1970. */
  expiresAt?: number
  audiences?: string[]
}

/** Returns the claims of a JSON Web Token without a check of its signature: good for messages, not for trust. */
export function claimsOf(token: string): Claims {
  try {
    const payload = Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()
    const { exp, aud } = JSON.parse(payload) as { exp?: unknown; aud?: unknown }
    const audiences = [aud].flat().filter((one) => typeof one === 'string')
    return {
      ...(typeof exp === 'number' && { expiresAt: exp * 1000 }),
      ...(audiences.length > 0 && { audiences }),
    }
  } catch {
    return {}
  }
}

/** Why the API server could not be asked, for a person who may know nothing of it. */
function reasonOf(error: unknown): string {
  if (error instanceof ApiConnectionError) return 'the API server does not answer; try again'
  if (error instanceof ApiError && error.code === 403)
    return 'the console has no right to ask the API server; its account needs the ClusterRole fairlead-console'
  return 'the API server has answered with an error; try again'
}

interface Entry<Value> {
  /** The time of the question: the answer may be as old as that. */
  askedAt: number
  answer: Promise<Value>
}

export interface TimedCacheOptions {
  entries: number
  /** How long an answer counts, from the time it was asked for. */
  ms: number
  /** Milliseconds of a clock that only goes forward. */
  now: () => number
}

/** Answers of a server, for a bounded time. Equal questions at one time are asked once. A failure is not kept. */
export class TimedCache<Value> {
  readonly #options: TimedCacheOptions
  readonly #entries: LRUCache<string, Entry<Value>>

  constructor(options: TimedCacheOptions) {
    this.#options = options
    this.#entries = new LRUCache({ max: options.entries })
  }

  /** Undefined: not known, or known for too long. */
  known(key: string): Promise<Value> | undefined {
    const { now, ms } = this.#options
    const entry = this.#entries.get(key)
    return entry !== undefined && now() - entry.askedAt < ms ? entry.answer : undefined
  }

  get(key: string, ask: () => Promise<Value>): Promise<Value> {
    const known = this.known(key)
    if (known !== undefined) return known
    const entry: Entry<Value> = { askedAt: this.#options.now(), answer: ask() }
    this.#entries.set(key, entry)
    entry.answer.catch(() => {
      if (this.#entries.get(key) === entry) this.#entries.delete(key)
    })
    return entry.answer
  }
}
