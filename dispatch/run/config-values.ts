import { type KubeObject, RetryAfterError, type RunContext } from '#contracts'
import { isForbidden, isNotFound, type KubeClient, resourcePath } from '#kube'
import { unlessAborted } from '#primitives'
import { type ConfigValue, missingConfig, type ReconcilerSpec, TOKEN_SECONDS } from '#spec'
import { DROPPED, type Gate } from '../gate.ts'

/** A changed Secret reaches the function after this time at the latest. */
const FRESH_MS = 10_000

const CORE = { group: '', version: 'v1' }
const ACCOUNTS = { ...CORE, resource: 'serviceaccounts' }
const HOLDERS = {
  Secret: { ...CORE, resource: 'secrets' },
  ConfigMap: { ...CORE, resource: 'configmaps' },
}

export interface ConfigValuesDeps {
  reconciler: string
  /** Has the rights of the account of the Reconciler. */
  kube: Pick<KubeClient, 'get' | 'create'>
  gate: Gate
  now: () => Date
}

type Values = NonNullable<RunContext['config']>
type Account = NonNullable<ReconcilerSpec['serviceAccount']>

/** A Secret or a ConfigMap. */
interface Holder extends KubeObject {
  data?: Record<string, string>
}

interface TokenRequest {
  status?: { token?: string; expirationTimestamp?: string }
}

/**
 * Reads the values that a Reconciler declares for its external system, as its account. All its runs share an answer, which
 * is at most ten seconds old. The values are nowhere but in this object and in the calls that receive them.
 */
export class ConfigValues {
  readonly #deps: ConfigValuesDeps
  readonly #declared: readonly ConfigValue[]
  readonly #account: Account
  #known: { answer: Promise<Values>; until: number } | undefined
  readonly #tokens = new Map<string, { token: string; until: number }>()

  constructor(deps: ConfigValuesDeps, declared: readonly ConfigValue[], account: Account) {
    this.#deps = deps
    this.#declared = declared
    this.#account = account
  }

  /** Rejects with a RetryAfterError that names a value which is missing, or with the error of the API server. */
  values(signal: AbortSignal): Promise<Values> {
    const now = this.#deps.now().getTime()
    if (this.#known === undefined || now >= this.#known.until) {
      const known = { answer: this.#read(), until: now + FRESH_MS }
      this.#known = known
      // What is missing is missing for all. Another error may be over at the next call.
      known.answer.catch((error: unknown) => {
        if (!(error instanceof RetryAfterError) && this.#known === known) this.#known = undefined
      })
    }
    return unlessAborted(this.#known.answer, signal)
  }

  async #read(): Promise<Values> {
    const holders = new Map<string, Promise<Holder>>()
    const held = (kind: keyof typeof HOLDERS, name: string, value: string): Promise<Holder> => {
      const title = `${kind} ${name}`
      const reading = holders.get(title) ?? this.#holder(kind, name, value)
      holders.set(title, reading)
      return reading
    }
    const valueOf = async ({ name, secret, configMap, audience }: ConfigValue): Promise<string> => {
      if (audience !== undefined) return this.#token(name, audience)
      const kind = secret === undefined ? 'ConfigMap' : 'Secret'
      const { name: holder, key } = secret ?? configMap ?? { name: '', key: '' }
      const text = (await held(kind, holder, name)).data?.[key] ?? ''
      if (text === '')
        throw missingConfig(name, `${kind} ${this.#account.namespace}/${holder} has no key ${key}: add it`)
      return kind === 'Secret' ? Buffer.from(text, 'base64').toString() : text
    }
    const values = await Promise.allSettled(this.#declared.map(valueOf))
    const failed = values.find((one) => one.status === 'rejected')
    if (failed !== undefined) throw failed.reason
    const texts = values.flatMap((one) => ('value' in one ? [one.value] : []))
    return Object.fromEntries(this.#declared.map(({ name }, index) => [name, texts[index] ?? '']))
  }

  async #holder(kind: keyof typeof HOLDERS, name: string, value: string): Promise<Holder> {
    const { namespace } = this.#account
    const path = resourcePath(HOLDERS[kind], namespace, name)
    return this.#ask(() => this.#deps.kube.get<Holder>(path)).catch((error: unknown) => {
      throw isNotFound(error)
        ? missingConfig(value, `there is no ${kind} ${namespace}/${name}: create it`)
        : refused(value, error)
    })
  }

  /** A token is renewed after half of its life. */
  async #token(value: string, audience: string): Promise<string> {
    const now = this.#deps.now().getTime()
    const known = this.#tokens.get(audience)
    if (known !== undefined && now < known.until) return known.token
    const { namespace, name } = this.#account
    const request = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: { audiences: [audience], expirationSeconds: TOKEN_SECONDS },
    }
    const path = resourcePath(ACCOUNTS, namespace, name, 'token')
    const { status } = await this.#ask(() => this.#deps.kube.create<TokenRequest>(path, request)).catch(
      (error: unknown) => {
        throw isNotFound(error)
          ? missingConfig(value, `there is no ServiceAccount ${namespace}/${name}: install the function again`)
          : refused(value, error)
      },
    )
    const { token = '', expirationTimestamp = '' } = status ?? {}
    const endsAt = Date.parse(expirationTimestamp)
    if (token === '' || Number.isNaN(endsAt)) throw missingConfig(value, 'the API server has answered without a token')
    this.#tokens.set(audience, { token, until: now + (endsAt - now) / 2 })
    return token
  }

  /** Answers belong to all runs, so no run can abort them. */
  async #ask<T>(request: () => Promise<T>): Promise<T> {
    const { gate, reconciler } = this.#deps
    const answer = await gate.run({ reconciler, kind: 'read' }, request)
    if (answer === DROPPED) throw new TypeError('a request without "unwanted" was dropped')
    return answer
  }
}

/** The reader is the account of a function that was installed without the value, or a person in a dry run. Other errors may pass. */
const refused = (value: string, error: unknown): unknown =>
  isForbidden(error)
    ? missingConfig(value, `${(error as Error).message}: install the function again, or allow it`, error)
    : error
