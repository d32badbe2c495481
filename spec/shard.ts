import type { KubeObject } from '#contracts'

/** The label of a Reconciler that names its shard. */
export const SHARD_LABEL = 'fairlead.dev/shard'

/** The reason of the condition Synced after a shard has released the Reconciler. */
export const RELEASED = 'Released'

/** Returns the shard that serves the Reconciler; '' is the installation without a shard. */
export const shardOf = ({ metadata }: Pick<KubeObject, 'metadata'>): string => metadata.labels?.[SHARD_LABEL] ?? ''

export const nameOfShard = (shard: string): string =>
  shard === '' ? 'the installation without a shard' : `shard ${shard}`

/**
 * Returns the shard whose bridges have taken up the Reconciler and have not released it, by its status. Undefined: no
 * shard. Versions without shards wrote no field `shard`, so their Reconcilers belong to the shard ''.
 */
export function holderOf({ status }: Pick<KubeObject, 'status'>): string | undefined {
  const { conditions = [], shard = '' } = (status ?? {}) as Held
  const synced = conditions.find(({ type }) => type === 'Synced')
  return synced === undefined || synced.reason === RELEASED ? undefined : shard
}

interface Held {
  conditions?: { type: string; reason?: string }[]
  shard?: string
}
