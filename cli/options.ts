import { InvalidArgumentError, Option } from 'commander'
import type { Config } from '#process/config'
import type { GrantedKind } from '#process/functions'

/**
 * Writes a result to standard output. All other output goes to standard error. `paint` adds colors after the control
 * characters in the text are escaped.
 */
export type Print = (text: string, paint?: (text: string) => string) => void

/** The context of a command. */
export interface CommandContext {
  /**
   * Returns the configuration for the cluster that the command line chooses. `any`: the command serves all clusters of a file
   * if none is chosen.
   */
  config: (which?: 'any') => Promise<Config>
  print: Print
  setExitCode: (code: number) => void
}

const collect = (value: string, previous: string[]): string[] => [...previous, value]

/** Returns an option that may be given several times. `shown`: the default in the help. */
export const repeatable = (flags: string, description: string, shown = 'none'): Option =>
  new Option(flags, `${description}; may be repeated`).argParser(collect).default([] as string[], shown)

export const whole = (least: number, most: number) => (text: string) => {
  const value = Number(text)
  if (!Number.isInteger(value) || value < least || value > most)
    throw new InvalidArgumentError(`give a whole number from ${least} to ${most}.`)
  return value
}

export const objectName = (text: string): string => {
  if (!/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(text))
    throw new InvalidArgumentError('give a name as in Kubernetes: lower-case letters, digits, dashes and dots.')
  return text
}

/** Parses the prefixes of streams. */
export function streamPrefixes(text: string, before: string[] = []): string[] {
  if (!/^[A-Za-z0-9-]{1,65}$/.test(text)) throw new InvalidArgumentError('give letters, digits and hyphens.')
  return [...before, text]
}

/** Parses the numbers of recorded runs. */
export function runNumbers(text: string, before: number[]): number[] {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('give the number that `runs ls` shows.')
  return [...before, Number(text)]
}

/** The first choice is the default. */
export const outputOption = (...choices: string[]): Option =>
  new Option('-o, --output <format>', 'Output format').choices(choices).default(choices[0])

export const functionOption = (): Option => repeatable('-f, --function <file>', 'Module that exports reconcilers')

/** Returns the option of a command that names one function. */
export const namedFunctionOption = (): Option => functionOption().default([] as string[], 'the built-in functions')

export const separated = (text: string): string[] => {
  const values = text.split(',').map((value) => value.trim())
  if (values.includes('')) throw new InvalidArgumentError('give names with commas between.')
  return values
}

export const builtinOption = (): Option =>
  new Option(
    '--builtin <names>',
    'Built-in functions, separated by commas: at, etcd (with backups and restores), memcached, visitors, or all',
  )
    .argParser((text, previous: string[]) => [...previous, ...separated(text)])
    .default([] as string[], 'none')

export const adapterOption = (): Option =>
  new Option(
    '--adapter <names>',
    'Adapters, separated by commas: metacontroller (serves the CompositeControllers and DecoratorControllers in the cluster)',
  ).argParser((text, previous: string[] | undefined) => [...(previous ?? []), ...separated(text)])

export const namespacesOption = (): Option =>
  new Option(
    '--namespaces <names>',
    'Namespaces of the built-in functions, separated by commas; permissions are bound only there (default: all)',
  ).argParser((text) => separated(text).map(objectName))

/** Parses `Widget.v1.example.com=widgets`. */
const grantedKind = (text: string): GrantedKind => {
  const [, kind, version, group = '', resource] =
    /^([A-Z][A-Za-z0-9-]*)\.([a-z][a-z0-9-]*)(?:\.([a-z0-9.-]+))?=([a-z][a-z0-9-]*)$/.exec(text) ?? []
  if (kind !== undefined && version !== undefined && resource !== undefined) return { group, version, resource, kind }
  throw new InvalidArgumentError(
    `${JSON.stringify(text)} is no kind: write KIND.VERSION.GROUP=PLURAL, as in Widget.v1.example.com=widgets or Secret.v1=secrets.`,
  )
}

export const kindsOption = (): Option =>
  new Option(
    '--kinds <kinds>',
    'Kinds that objects may name, separated by commas: Deployment.v1.apps=deployments,Secret.v1=secrets (default: none)',
  ).argParser((text) => separated(text).map(grantedKind))

export const revisionOption = (): Option =>
  new Option(
    '--revision <text>',
    'Revision of the functions, e.g. a commit; every object runs again when it changes',
  ).argParser((text) => {
    if (text.length >= 1 && text.length <= 253) return text
    throw new InvalidArgumentError(`give 1 to 253 characters, not ${text.length}.`)
  })

export const allClustersOption = (): Option =>
  new Option('--all-clusters', 'List each cluster of the file of --clusters')

/** The prefix of a cluster is its name, unless its entry says otherwise. */
export const clusterUsersOption = (): Option =>
  new Option(
    '--cluster-users <names>',
    'Clusters of a file that get users of NATS of their own, separated by commas (default: none)',
  ).argParser((text) => separated(text).map(clusterName))

function clusterName(text: string): string {
  if (/^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$/.test(text)) return text
  throw new InvalidArgumentError(
    `${JSON.stringify(text)} is no cluster: give 1 to 32 lower-case letters, digits or hyphens.`,
  )
}

export const dirOption = (): Option =>
  new Option('--dir <folder>', 'Folder of the local cluster (default: one per user)')

export const nodeOption = (): Option =>
  new Option(
    '--node <kind>',
    'Node: real runs pods, kwok only changes their phase, none has no node, auto is real if the machine can',
  )
    .choices(['auto', 'real', 'kwok', 'none'])
    .default('auto')

export const FORMATS = ['text', 'json', 'event'] as const
export type Format = (typeof FORMATS)[number]

export type Target = { kind: 'http'; url: string } | { kind: 'nats'; subject: string }

export const modeOption = () =>
  new Option(
    '--mode <mode>',
    'Content mode of CloudEvents; binary: attributes in headers, structured: everything in the body',
  )
    .choices(['binary', 'structured'])
    .default('binary')

/** Parses `http(s)://…` or `nats:SUBJECT`. */
export function target(text: string): Target {
  if (/^https?:\/\//.test(text) && URL.canParse(text)) return { kind: 'http', url: text }
  const [, subject] = /^nats:([^\s*>]+)$/.exec(text) ?? []
  if (subject !== undefined) return { kind: 'nats', subject }
  throw new InvalidArgumentError('give http://…, https://… or nats:SUBJECT.')
}

const VERBS = ['added', 'modified', 'deleted', 'moved']

export function verbsFrom(text: string): string[] {
  const verbs = text.split(',').map((verb) => verb.trim().replace('dev.fairlead.resource.', ''))
  const wrong = verbs.find((verb) => !VERBS.includes(verb))
  if (wrong !== undefined) throw new InvalidArgumentError(`${JSON.stringify(wrong)} is none of ${VERBS.join(', ')}.`)
  return verbs
}

const UNITS = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Parses a time, or a duration before now. */
export function momentFrom(text: string, now = Date.now()): Date {
  const [, amount, unit] = /^(\d+)([smhd])$/.exec(text) ?? []
  if (amount !== undefined) return new Date(now - Number(amount) * UNITS[unit as keyof typeof UNITS] * 1000)
  const time = Date.parse(text)
  if (/^\d{4}-\d\d-\d\dT/.test(text) && !Number.isNaN(time)) return new Date(time)
  throw new InvalidArgumentError('give how long ago (30s, 10m, 2h, 1d) or a time (2026-01-31T12:00:00Z).')
}
