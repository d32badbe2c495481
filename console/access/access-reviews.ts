import { type KubeClient, resourcePath } from '#kube'
import { BoundedMap, pause, TokenBucket } from '#primitives'
import { TimedCache } from './timed-cache.ts'
import type { ReviewedPerson } from './token-reviews.ts'
import type { Action, Person } from './types.ts'

const REVIEWS = { group: 'authorization.k8s.io', version: 'v1', resource: 'subjectaccessreviews' }
const TIMEOUT_MS = 5000

const REMEMBERED = 20_000
const PEOPLE = 1000
/** Reviews for one person. */
const REVIEWS_AT_MOST = { perSecond: 50, burst: 200 }
/** A single question comes through also behind those of a long list. */
const PATIENCE_MS = 500

export interface AccessReviewsOptions {
  kube: KubeClient
  /** How long an answer of the API server counts. */
  cacheMs: number
  /** Milliseconds of a clock that only goes forward. */
  now: () => number
  /** Called when a person asks for more reviews than the console makes: actions without a review are denied. */
  limited: (person: Person) => void
}

/** The rights of people, from reviews of the API server. */
export class AccessReviews {
  readonly #options: AccessReviewsOptions
  readonly #cache: TimedCache<boolean>
  readonly #rates = new BoundedMap<string, TokenBucket>(PEOPLE)

  constructor(options: AccessReviewsOptions) {
    this.#options = options
    this.#cache = new TimedCache({ entries: REMEMBERED, ms: options.cacheMs, now: options.now })
  }

  /** Rejects where the API server cannot be asked. */
  async may(person: ReviewedPerson, action: Action): Promise<boolean> {
    for (const question of questionsOf(action)) if (await this.#isAllowed(person, question)) return true
    return false
  }

  async #isAllowed(person: ReviewedPerson, question: Action): Promise<boolean> {
    const { name, groups, uid, extra } = person
    const { verb, group, resource, namespace, name: object } = question
    const who = JSON.stringify([name, groups, uid, extra])
    const key = JSON.stringify([who, verb, group, resource, namespace, object])
    return this.#cache.known(key) ?? this.#reviewInTurn(person, who, key, question)
  }

  async #reviewInTurn(person: ReviewedPerson, who: string, key: string, question: Action): Promise<boolean> {
    const turn = this.#rateOf(who).takeWithin(PATIENCE_MS)
    if ('returnMs' in turn) {
      this.#options.limited(person)
      return false
    }
    if (turn.waitMs > 0) await pause(turn.waitMs)
    return this.#cache.get(key, () => this.#review(person, question))
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

  #rateOf(who: string): TokenBucket {
    const rate = this.#rates.get(who) ?? new TokenBucket(REVIEWS_AT_MOST, this.#options.now)
    // The people who asked last are remembered.
    this.#rates.set(who, rate)
    return rate
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
