/** `npm run soak fleet [-- …]`: many operators on Fairlead, edited all the time, while each minute a process dies. */
import { copyFileSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { FleetEdits } from '../bench/fleet/edits.ts'
import { operators } from '../bench/fleet/functions.ts'
import { openPlace } from '../bench/fleet/place.ts'
import { calm } from '../bench/fleet/scenes.ts'
import { startFleet } from '../bench/fleet/sides.ts'
import { quantile } from '../bench/median.ts'
import type { FairleadProcess } from '../support/fairlead.ts'
import { randomFrom } from '../support/random.ts'
import { until } from '../support/wait.ts'
import { killEachMinute, type Memory, noteMemory, startEnded } from './fleet/faults.ts'
import { wrongIn } from './fleet/judge.ts'
import { objectsOf } from './fleet/objects.ts'
import { positive, UsageError, valuesOf, whole } from './options.ts'
import { endOf, table } from './report.ts'

const USAGE = `npm run soak fleet -- [--minutes N] [--seed S] [--operators N] [--objects N] [--others N] [--per-second N]

  --minutes N      how long objects are edited, with a kill in each minute; default 60
  --seed S         of what is done to whom; default by chance, and printed
  --operators N    half of them are of Ats, half of Memcacheds; default 30
  --objects N      of each operator, in the beginning; default 100
  --others N       pods of others, and fewer ConfigMaps and Nodes; default 5000
  --per-second N   edits; default 10

Exit code 0: clean; 1: something was lost, doubled, early, deleted or ended; 2: wrong options.`

const OPTIONS = {
  help: { type: 'boolean', short: 'h', default: false },
  minutes: { type: 'string', default: '60' },
  seed: { type: 'string', default: String(Math.floor(Math.random() * 1e6)) },
  operators: { type: 'string', default: '30' },
  objects: { type: 'string', default: '100' },
  others: { type: 'string', default: '5000' },
  'per-second': { type: 'string', default: '10' },
} as const

/** After the last edit, all must be followed within so long: a key whose runs were cut short often waits up to 17 minutes. */
const LONGEST_MS = 1_500_000
/** From this sample of memory on, a process is warm. */
const WARM_MINUTE = 5

const say = (line: string) => void process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${line}\n`)

try {
  const { help, ...given } = valuesOf(process.argv.slice(2), OPTIONS)
  if (help) process.stdout.write(`${USAGE}\n`)
  process.exit(help || (await soak(given)) ? 0 : 1)
} catch (error) {
  if (!(error instanceof UsageError)) throw error
  process.stderr.write(`${error.message}\n\n${USAGE}\n`)
  process.exit(2)
}

async function soak(given: Record<Exclude<keyof typeof OPTIONS, 'help'>, string>): Promise<boolean> {
  const [minutes, seed] = [positive('--minutes', given.minutes), whole('--seed', given.seed)]
  const objects = whole('--objects', given.objects)
  const fleetOf = operators(whole('--operators', given.operators))
  say(`seed ${seed}: the same faults again with --minutes ${minutes} --seed ${seed}`)
  await using place = await openPlace(fleetOf, whole('--others', given.others))
  const edits = new FleetEdits(place.kube, { makesAts: true })
  await edits.create(fleetOf, objects)
  const stop = new AbortController()
  await edits.watch(stop.signal)
  const lives: FairleadProcess[] = []
  await using fleet = await startFleet('Fairlead', { ...place, onStart: (one) => void lives.push(one) })
  await edits.settled(fleetOf, objects)
  const seen = objectsOf(place.kube, fleetOf, edits)
  const before = (await seen.found()).deployments.map(({ uid }) => uid)
  say(`${fleetOf.length} operators with ${objects} objects each have settled`)
  const wrong: string[] = []
  const told = {
    wrong: (what: string) => {
      say(what)
      wrong.push(what)
    },
    say: (line: string) => say(`${line}; ${edits.open} edits open`),
    why: async (pid: number) => {
      const life = lives.find((one) => one.pid === pid)
      return JSON.stringify({ ...(await life?.exited), logs: life?.logs.slice(-5) })
    },
  }
  const retiring = seen.retirePods(stop.signal)
  const [made, memory] = await Promise.all([
    edits.during(minutes * 60, positive('--per-second', given['per-second']), LONGEST_MS),
    killEachMinute(fleet, Math.floor(minutes), randomFrom(seed), told),
  ])
  const areDone = async () => (await seen.found()).ats.every(({ due, phase }) => due === undefined || phase === 'DONE')
  await until(areDone, { timeoutMs: LONGEST_MS, leastMs: 5000 }).catch(() => undefined)
  await calm({ fleet })
  await startEnded(fleet.members, told)
  noteMemory(memory)
  stop.abort()
  await retiring
  const times = made.flatMap(({ ms }) => ms ?? []).toSorted((a, b) => a - b)
  const unfollowed = made.filter(({ ms }) => ms === undefined).map(({ name }) => name)
  const found = await seen.found()
  wrong.push(...wrongIn({ ...found, before, unfollowed }))
  const evidence = wrong.length > 0 ? keep(wrong, lives, fleet.logFiles) : undefined
  const figures = [
    ['edits', String(made.length)],
    [
      'edits followed after, p50 / p99 / longest ms',
      [0.5, 0.99, 1].map((share) => quantile(times, share).toFixed(0)).join(' / '),
    ],
    ['Ats that were due / their pods', `${edits.due.size} / ${found.pods.length}`],
    ['Memcacheds / Deployments', `${found.memcacheds.length} / ${found.deployments.length}`],
  ]
  const about = `Soak of a fleet, seed ${seed}, ${minutes} minutes, ${fleetOf.length} operators with ${objects} objects each`
  const lines = [about, '', ...table(figures), '', ...table(memoryRows(memory)), '', ...endOf(wrong, evidence)]
  process.stdout.write(`\n${lines.join('\n')}\n`)
  return wrong.length === 0
}

function memoryRows(memory: Memory): string[][] {
  const rows = [...memory].map(([{ title }, sizes], index) => {
    const [mib, last] = [sizes.map((one) => one.mib), sizes.at(-1)]
    const shown = [mib[WARM_MINUTE - 1], Math.max(...mib), last?.mib].map((one) => one?.toFixed(0) ?? '')
    return [`${index + 1}: ${title}`, ...shown, String(sizes.filter(({ pid }) => pid === last?.pid).length)]
  })
  return [['memory, MiB', `minute ${WARM_MINUTE}`, 'most', 'last', 'minutes since its start'], ...rows]
}

/** All findings, and the logs of each process that ever ran. */
function keep(wrong: readonly string[], lives: readonly FairleadProcess[], files: readonly string[]): string {
  const dir = mkdtempSync(join(tmpdir(), 'fairlead-soak-fleet-'))
  writeFileSync(join(dir, 'findings.txt'), `${wrong.join('\n')}\n`)
  for (const { pid, logs } of lives)
    writeFileSync(join(dir, `fairlead-${pid}.log`), logs.map((line) => `${JSON.stringify(line)}\n`).join(''))
  for (const file of files) copyFileSync(file, join(dir, basename(file)))
  return dir
}
