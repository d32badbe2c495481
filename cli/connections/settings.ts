import { hostname } from 'node:os'
import type { Logger } from 'pino'
import type { QueueOptions } from '#queue'
import type { Config } from '../config.ts'

export const prefixOf = ({ FAIRLEAD_PREFIX: prefix }: Config) => (prefix === undefined ? {} : { prefix })

export function queueOptions(config: Config, log: Logger): QueueOptions {
  const leaseMs = config.FAIRLEAD_LEASE_SECONDS * 1000
  return { ...prefixOf(config), leaseMs, ackWaitMs: leaseMs, log, instance: `${hostname()}-${process.pid}` }
}
