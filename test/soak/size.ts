import { parseArgs } from 'node:util'
import { measureSize } from './size/measure.ts'

/**
 * `npm run soak size -- [--objects 1000000] [--reconcilers 1000] [--waiting 100000] [--rate 1000] [--edits 20]
 * [--minutes 30] [--replicas 1|3] [--results FILE]`: how much bridge, dispatcher and NATS need for so many objects, what an
 * edit takes while `rate` objects change each second, how long each part takes to start again, and which part is the first
 * to fall behind when edits become more frequent. Needs about 12 GiB of memory for a million objects. Exit code 0: every
 * edit was followed, and no process was lost.
 */
const { values } = parseArgs({
  options: {
    objects: { type: 'string', default: '1000000' },
    reconcilers: { type: 'string', default: '1000' },
    waiting: { type: 'string', default: '100000' },
    bytes: { type: 'string', default: '1024' },
    rate: { type: 'string', default: '1000' },
    edits: { type: 'string', default: '20' },
    minutes: { type: 'string', default: '30' },
    replicas: { type: 'string', default: '1' },
    results: { type: 'string' },
  },
})
const number = (name: keyof typeof values): number => {
  const value = Number(values[name])
  if (!(value > 0)) throw new Error(`--${name} must be a number above 0, not ${values[name]}`)
  return value
}
const teams = number('reconcilers')
const primaries = Math.round(number('waiting') / teams)
const isWhole = await measureSize(
  {
    teams,
    primaries,
    others: Math.max(1, Math.round(number('objects') / teams) - primaries),
    bytes: number('bytes'),
    rate: number('rate'),
    edits: number('edits'),
    minutes: number('minutes'),
    replicas: number('replicas') === 3 ? 3 : 1,
  },
  values.results,
)
process.exit(isWhole ? 0 : 1)
