import type { KubeObject, ResourceRef } from '#contracts'
import type { Situation, Target } from './situation.ts'

/**
 * problem: it does not become right by itself. pending: something is under way. unknown: a server could not be asked.
 * note: worth knowing.
 */
export type Level = 'problem' | 'pending' | 'unknown' | 'note'

export interface Finding {
  /** CamelCase, for scripts. */
  reason: string
  level: Level
  reconciler?: string
  message: string
  next?: NextStep
}

/** What to do about it. */
export interface NextStep {
  say: string
  /** For a shell. */
  command?: string
}

/** One thing that may be the case; nothing: it is not. */
export type Rule = (situation: Situation) => Finding[]

export const step = (say: string, command?: string): NextStep => ({ say, ...(command !== undefined && { command }) })

/** `websites.example.com`, as kubectl takes it. */
const kubectlKind = ({ resource, group }: Pick<ResourceRef, 'resource' | 'group'>): string =>
  group === '' ? resource : `${resource}.${group}`

/** `websites.example.com hello -n default` */
export function kubectlName({ ref, namespace, name }: Pick<Target, 'ref' | 'namespace' | 'name'>): string {
  return `${kubectlKind(ref)} ${name}${namespace === undefined ? '' : ` -n ${namespace}`}`
}

/** `Website default/hello` */
export const shown = ({ kind, namespace, name }: Pick<Target, 'kind' | 'namespace' | 'name'>): string =>
  `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`

/** `website default/hello`: the key, as `fairlead queue` takes it. */
export const keyName = (reconciler: string, { namespace, name }: Target): string =>
  `${reconciler} ${namespace === undefined ? '' : `${namespace}/`}${name}`

export const nameOf = ({ metadata }: KubeObject): string => metadata.name

export const patchOf = (reconciler: string, spec: object): string =>
  `kubectl patch reconciler ${reconciler} --type merge -p '${JSON.stringify({ spec })}'`
