import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { shownKey } from '#events'
import type { Config } from '#host/config'
import type { QueueLog, QueueOptions } from '#queue'

export const prefixOf = ({ FAIRLEAD_PREFIX: prefix }: Config) => (prefix === undefined ? {} : { prefix })

export function queueOptions(config: Config, log: Logger): QueueOptions {
  const leaseMs = config.FAIRLEAD_LEASE_SECONDS * 1000
  return {
    ...prefixOf(config),
    leaseMs,
    ackWaitMs: leaseMs,
    log: inWords(log),
    instance: `${hostname()}-${process.pid}`,
  }
}

/** The queue knows functions and keys; people know Reconcilers and objects. */
function inWords(log: Logger): QueueLog {
  const at = (level: keyof QueueLog) => (fields: { fn?: string; key?: string }, message: string) => {
    const { fn: reconciler, key, ...rest } = fields
    log[level]({ ...(reconciler && { reconciler }), ...(key && { key: shownKey(key) }), ...rest }, message)
  }
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
}
