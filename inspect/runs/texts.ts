import type { Cause, RunRecord } from '#contracts'

/** `changed Deployment shop/web` */
export const causeText = ({ is, object }: Cause): string => {
  const [kind = '', name = ''] = object.split(' ')
  return `${is} ${kind.split('.')[0]} ${name}`
}

/** Describes the known causes of the run. */
export function becauseOf({ causes, fired, cutShort, attempt }: RunRecord): string {
  const texts = (causes ?? []).map(causeText)
  if (fired) texts.unshift('its timer came due')
  if (cutShort) texts.unshift('the run before never ended')
  if (texts.length > 0) return texts.join(', ')
  if (attempt > 0) return 'another try'
  return causes === undefined ? 'not known: no run before it is recorded' : 'nothing that it reads has changed'
}

export const tookMs = ({ startedAt, endedAt }: RunRecord): number => Date.parse(endedAt) - Date.parse(startedAt)
export const waitedMs = ({ queuedAt, startedAt }: RunRecord): number =>
  Math.max(0, Date.parse(startedAt) - Date.parse(queuedAt))

export const writesIn = ({ laps }: RunRecord): number => laps.reduce((sum, { writes }) => sum + writes.length, 0)
