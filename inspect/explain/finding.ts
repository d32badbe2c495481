import { type KubeObject, namespacedName, type ResourceRef } from '#contracts'
import type { Situation, Target } from './situation.ts'

/**
 * problem: needs an action. pending: a change is in progress. unknown: a server did not answer. note: additional
 * information.
 */
export type Level = 'problem' | 'pending' | 'unknown' | 'note'

export interface Finding {
  /** The reason in CamelCase, for scripts. */
  reason: string
  level: Level
  reconciler?: string
  message: string
  next?: NextStep
}

/** A step that the user can take. */
export interface NextStep {
  say: string
  /** A command for a shell. */
  command?: string
}

/** Returns its findings for the situation; an empty list if the rule does not apply. */
export type Rule = (situation: Situation) => Finding[]

export const step = (say: string, command?: string): NextStep => ({ say, ...(command !== undefined && { command }) })

/** The kind for kubectl: `websites.example.com`. */
const kubectlKind = ({ resource, group }: Pick<ResourceRef, 'resource' | 'group'>): string =>
  group === '' ? resource : `${resource}.${group}`

/** `websites.example.com hello -n default` */
export function kubectlName({ ref, namespace, name }: Pick<Target, 'ref' | 'namespace' | 'name'>): string {
  return `${kubectlKind(ref)} ${name}${namespace === undefined ? '' : ` -n ${namespace}`}`
}

/** `Website default/hello` */
export const shown = ({ kind, namespace, name }: Pick<Target, 'kind' | 'namespace' | 'name'>): string =>
  `${kind} ${namespacedName({ namespace, name })}`

/** The key for `fairlead queue`: `website default/hello`. */
export const keyName = (reconciler: string, { namespace, name }: Target): string =>
  `${reconciler} ${namespacedName({ namespace, name })}`

export const nameOf = ({ metadata }: KubeObject): string => metadata.name

export const patchOf = (reconciler: string, spec: object): string =>
  `kubectl patch reconciler ${reconciler} --type merge -p '${JSON.stringify({ spec })}'`
