import { type ParseArgsConfig, parseArgs } from 'node:util'

export interface SoakOptions {
  help: boolean
  minutes: number
  seed: number
  replicas: 1 | 3
  /** Instead of all else: one At that waits so long while everything is dead. */
  waitMinutes?: number
}

export const USAGE = `npm run soak -- [--minutes N] [--replicas 1|3] [--seed S]
npm run soak -- --wait-minutes N

  --minutes N        how long workers and servers are mistreated; default 1
  --replicas 1|3     one nats-server, or three; default 1
  --seed S           of what is done to whom; default by chance
  --wait-minutes N   instead: everything is dead while an At waits so long

Exit code 0: clean; 1: something was lost, doubled, early or left behind; 2: wrong options. Ctrl-C ends it early, with its
report.`

/** Wrong use of the command. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export function soakOptions(args: string[]): SoakOptions {
  const { help, minutes, seed, replicas, 'wait-minutes': waitMinutes } = valuesOf(args, OPTIONS)
  if (replicas !== '1' && replicas !== '3') throw new UsageError(`--replicas is ${replicas}: it can be 1 or 3`)
  return {
    help,
    minutes: positive('--minutes', minutes),
    seed: seed === undefined ? Math.floor(Math.random() * 1e6) : whole('--seed', seed),
    replicas: replicas === '1' ? 1 : 3,
    ...(waitMinutes !== undefined && { waitMinutes: positive('--wait-minutes', waitMinutes) }),
  }
}

const OPTIONS = {
  help: { type: 'boolean', short: 'h', default: false },
  minutes: { type: 'string', default: '1' },
  seed: { type: 'string' },
  replicas: { type: 'string', default: '1' },
  'wait-minutes': { type: 'string' },
} as const

/** Throws a UsageError for an unknown option. */
export function valuesOf<const Options extends NonNullable<ParseArgsConfig['options']>>(
  args: string[],
  options: Options,
) {
  try {
    return parseArgs({ args, options }).values
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error))
  }
}

export function positive(name: string, text: string): number {
  const value = Number(text)
  if (!(value > 0 && value <= 24 * 60)) throw new UsageError(`${name} is ${text}: it must be above 0 and at most 1440`)
  return value
}

export function whole(name: string, text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 0) throw new UsageError(`${name} is ${text}: it must be a whole number`)
  return value
}
