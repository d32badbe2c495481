import { z } from 'zod'
import type { ForeignKubeConfig } from '#kube'
import { UsageError } from './exit.ts'

const name = (what: string) => z.string().regex(/^[A-Za-z0-9-]{1,32}$/, `${what}: 1 to 32 letters, digits or hyphens`)

/** A value of a label, and a part of the names of streams. */
const SHARD = /^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/

const LEASE = 'a number of seconds from 2 to 300'

const STATE = 'a whole number of MiB from 1 to 1024'

const KINDS = /^[a-z0-9]+(\.[a-z0-9-]+)*(,[a-z0-9]+(\.[a-z0-9-]+)*)*$/

function kindFrom(text: string): { group: string; resource: string } {
  const [resource = '', ...group] = text.split('.')
  return { resource, group: group.join('.') }
}

function isNatsUrl(text: string): boolean {
  const url = text.trim().includes('://') ? text.trim() : `nats://${text.trim()}`
  return URL.canParse(url) && /^(nats|tls):\/\/[^\s/]/.test(url)
}

const UNITS = { K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40 }

const bytes = z
  .string()
  .regex(/^[1-9]\d{0,9}[KMGT]i$/, 'a whole number of Ki, Mi, Gi or Ti, such as 7Gi')
  .transform((text) => Number.parseInt(text, 10) * UNITS[text.at(-2) as keyof typeof UNITS])
  .refine(Number.isSafeInteger, 'at most 8191Ti')

/** A list of values, separated by commas. */
const listOf = (one: string, what: string) =>
  z
    .string()
    .regex(new RegExp(`^${one}(,${one})*$`), `${what}, or several with commas between`)
    .transform((text) => text.split(','))
    .default([])

const RATES = 'rates of teams such as {"shop":{"reconcilers":["shop"],"perSecond":20}}'
const rate = z.strictObject({
  reconcilers: z.array(z.string().min(1)).min(1),
  perSecond: z.number().min(0.001).max(1000),
  burst: z.int32().min(1).max(10_000).optional(),
})

/** The rates that Reconcilers of a team share. Their names differ from those of Reconcilers. */
const runRates = z
  .string()
  .transform((text, context) => {
    const parsed = z.record(z.string().regex(/^[a-z0-9-]{1,63}$/), rate).safeParse(jsonIn(text))
    if (parsed.success)
      return Object.entries(parsed.data).map(([team, { reconcilers: limits, ...of }]) => ({
        name: `team/${team}`,
        limits,
        ...of,
      }))
    context.addIssue({ code: 'custom', message: RATES })
    return z.NEVER
  })
  .default([])

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const environment = z.object({
  KUBECONFIG: z.string().min(1).optional(),
  KUBERNETES_SERVICE_HOST: z.string().min(1).optional(),
  KUBERNETES_SERVICE_PORT: z.string().min(1).optional(),
  NATS_URL: z
    .string()
    .refine((urls) => urls.split(',').every(isNatsUrl), 'nats://host:port, or several with commas between')
    .default('nats://127.0.0.1:4222'),
  NATS_CA: z.string().min(1).optional(),
  NATS_CERT: z.string().min(1).optional(),
  NATS_KEY: z.string().min(1).optional(),
  NATS_API_PREFIX: z.string().min(1).optional(),
  FAIRLEAD_CLUSTERS: z.string().min(1).optional(),
  FAIRLEAD_PREFIX: name('a prefix').optional(),
  FAIRLEAD_SHARD: z.string().regex(SHARD, 'a shard: 1 to 32 lower-case letters, digits or hyphens').optional(),
  FAIRLEAD_REFERENCE_ONLY: z
    .string()
    .regex(KINDS, 'kinds as kubectl names them, with commas between: configmaps,widgets.example.com')
    .transform((text) => text.split(',').map(kindFrom))
    .default([]),
  FAIRLEAD_REPLICAS: z
    .enum(['1', '3'], '1 or 3')
    .default('1')
    .transform((text): 1 | 3 => (text === '3' ? 3 : 1)),
  FAIRLEAD_FUNCTION_ACCESS: z.string().min(1).optional(),
  FAIRLEAD_RUN_RATES: runRates,
  FAIRLEAD_REVISION: z.string().min(1).max(253).optional(),
  /** The name of the Knative revision that the container belongs to. */
  K_REVISION: z.string().min(1).max(253).optional(),
  POD_NAME: z.string().min(1).optional(),
  POD_NAMESPACE: z.string().min(1).optional(),
  POD_CONTAINER: z.string().min(1).optional(),
  FAIRLEAD_EVENTS_MAX_BYTES: bytes.optional(),
  FAIRLEAD_STORAGE_MAX_BYTES: bytes.optional(),
  FAIRLEAD_RUNS: z.enum(['on', 'off'], 'on or off').default('on'),
  FAIRLEAD_RUNS_MAX_BYTES: bytes.optional(),
  FAIRLEAD_CONSOLE_HOSTS: listOf('[a-z0-9]([a-z0-9.-]*[a-z0-9])?', 'a name such as console.example.com'),
  FAIRLEAD_CONSOLE_AUDIENCES: listOf('[^,\\s]+', 'an audience of tokens'),
  FAIRLEAD_CONSOLE_WRITES: z
    .enum(['true', 'false'], 'true or false')
    .default('false')
    .transform((text) => text === 'true'),
  FAIRLEAD_CONSOLE_CERT: z.string().min(1).optional(),
  FAIRLEAD_CONSOLE_KEY: z.string().min(1).optional(),
  FAIRLEAD_LEASE_SECONDS: z.coerce.number(LEASE).min(2, LEASE).max(300, LEASE).default(5),
  FAIRLEAD_MAX_STATE_MIB: z.coerce.number(STATE).int(STATE).min(1, STATE).max(1024, STATE).default(16),
  LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error', 'silent'], 'one of trace, debug, info, warn, error, silent')
    .default('info'),
  LOG_FORMAT: z.enum(['json', 'text'], 'json or text').optional(),
})

/** Command-line options that override variables of the environment. */
export interface CommonOptions {
  kubeconfig?: string
  context?: string
  nats?: string
  prefix?: string
  shard?: string
  clusters?: string
  cluster?: string
}

type Variables = z.output<typeof environment>

export type Config = Readonly<
  Variables & {
    context: string | undefined
    /** The name of the cluster in the file or inventory that lists it. */
    cluster?: string
    /** Only its agents send requests to its API server. */
    byAgent?: boolean
    /** Instead of a file. Its text is replaced when the inventory has another one. */
    foreignKubeConfig?: ForeignKubeConfig | undefined
  }
>

/**
 * Returns the configuration from the environment, read once. Throws an error that names the variable and the value if a
 * value is wrong.
 */
export function readConfig(env: NodeJS.ProcessEnv, options: CommonOptions = {}): Config {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''))
  const fromOptions = variablesOf(options)
  const parsed = environment.safeParse({ ...given, ...fromOptions })
  if (parsed.success) {
    refuseTwoSources(parsed.data, options)
    return withPrefix({ ...parsed.data, context: options.context }, parsed.data.FAIRLEAD_PREFIX)
  }
  const wrong = parsed.error.issues.map((issue) => {
    const variable = String(issue.path[0])
    const option = optionOf[variable]
    const source = option !== undefined && variable in fromOptions ? `--${option}` : variable
    // Hides the part before the @, which may contain a password.
    const value = (fromOptions[variable] ?? given[variable])?.replace(/^.*@/s, '…@')
    return `${source} is ${JSON.stringify(value)}, which is not valid: ${issue.message}`
  })
  throw new UsageError(wrong.join('; '))
}

const optionOf: Record<string, keyof CommonOptions> = {
  KUBECONFIG: 'kubeconfig',
  NATS_URL: 'nats',
  FAIRLEAD_PREFIX: 'prefix',
  FAIRLEAD_SHARD: 'shard',
  FAIRLEAD_CLUSTERS: 'clusters',
}

/**
 * Returns the configuration with the streams of this prefix. Each shard has streams of its own, so that two shards never
 * share a queue.
 */
export function withPrefix(config: Config, prefix: string | undefined): Config {
  const parts = [prefix, config.FAIRLEAD_SHARD].filter((part) => part !== undefined && part !== '')
  return Object.freeze({ ...config, FAIRLEAD_PREFIX: parts.length === 0 ? undefined : parts.join('-') })
}

/** The file of clusters says where each cluster is, and the prefix of its streams. */
function refuseTwoSources(
  { FAIRLEAD_PREFIX: prefix, FAIRLEAD_CLUSTERS: file }: Variables,
  options: CommonOptions,
): void {
  if (file === undefined) return
  const given = Object.entries({ '--kubeconfig': options.kubeconfig, '--context': options.context, 'a prefix': prefix })
  const twice = given.find(([, value]) => value !== undefined)
  if (twice !== undefined)
    throw new UsageError(`${twice[0]} is given, and ${file} lists clusters with their own: leave one of them out`)
}

/** Returns the variables that the given options override, with their values. */
export function variablesOf(options: CommonOptions): Record<string, string> {
  return Object.fromEntries(
    Object.entries(optionOf).flatMap(([variable, option]) => {
      const value = options[option]
      return value === undefined ? [] : [[variable, value]]
    }),
  )
}
