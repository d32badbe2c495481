import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { shownKey } from '#events'
import type { Config } from '#host/config'
import type { QueueOptions } from '#queue'

export const prefixOf = ({ FAIRLEAD_PREFIX: prefix }: Pick<Config, 'FAIRLEAD_PREFIX'>) =>
  prefix === undefined ? {} : { prefix }

export function queueOptions(config: Config, log: Logger): QueueOptions {
  const leaseMs = config.FAIRLEAD_LEASE_SECONDS * 1000
  return {
    ...prefixOf(config),
    leaseMs,
    ackWaitMs: leaseMs,
    // Logs a key as the object that it stands for.
    log: log.child({}, { serializers: { key: shownKey } }),
    instance: `${hostname()}-${process.pid}`,
  }
}
