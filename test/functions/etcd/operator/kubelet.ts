import { memberOf } from '../../../../functions/etcd/operator/names.ts'
import type { PodObject } from '../../../../functions/etcd/operator/parts.ts'
import type { Start } from './model.ts'

export const isRunning = (pod: PodObject): boolean => pod.status?.phase === 'Running'

export const imageOf = ({ spec }: PodObject): string => spec?.containers[0]?.image ?? ''

/** How its process is started. */
export function startOf({ metadata, spec }: PodObject, hasData: boolean): Start {
  const flag = (name: string) =>
    spec?.containers[0]?.command?.find((one) => one.startsWith(`--${name}=`))?.slice(name.length + 3) ?? ''
  const told = flag('initial-cluster')
    .split(',')
    .map((pair) => pair.slice(pair.indexOf('=') + 1))
  return {
    name: metadata.name,
    state: flag('initial-cluster-state'),
    token: flag('initial-cluster-token'),
    told,
    hasData,
  }
}

/** The members from which its data are copied first, and up to where at least. */
export interface Sources {
  names: string[]
  revision: number
}

/** Undefined: it has no need. */
export function sourcesOf({ spec }: PodObject): Sources | undefined {
  const { args = [] } = spec?.initContainers?.find(({ name }) => name === 'restore') ?? {}
  const option = (name: string) => args.find((one) => one.startsWith(`--${name}=`))?.slice(name.length + 3)
  const names = option('endpoints')?.split(',').map(memberOf)
  return names && { names, revision: Number(option('revision')) }
}
