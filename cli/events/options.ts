import { InvalidArgumentError, Option } from 'commander'

export const FORMATS = ['text', 'json', 'event'] as const
export type Format = (typeof FORMATS)[number]

export type Target = { kind: 'http'; url: string } | { kind: 'nats'; subject: string }

export const modeOption = () =>
  new Option('--mode <mode>', 'attributes in headers, or everything in the body')
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
