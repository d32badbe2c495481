/** `npm run soak webhooks [-- …]`: a new version of 10,000 objects, edited all the time, while processes and certificates change. */
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import type { KubeClient } from '#kube'
import { openPlace, Replicas, type WebhookPlace } from '../bench/webhooks/place.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { randomFrom } from '../support/random.ts'
import { positive, UsageError, valuesOf, whole } from './options.ts'
import { endOf, table } from './report.ts'
import { PageEdits } from './webhooks/edits.ts'
import { faultsUntil } from './webhooks/faults.ts'
import { type Fault, wrongIn } from './webhooks/judge.ts'
import { DEFINITION, pathOf, seenOf, VERSIONS, type Version, writeReleases } from './webhooks/pages.ts'

const USAGE = `npm run soak webhooks -- [--minutes N] [--seed S] [--objects N] [--per-second N]

  --minutes N      how long objects are edited in two versions, at least until the migration has ended; default 30
  --seed S         of the order of faults, and of edits; default by chance, and printed
  --objects N      default 10000
  --per-second N   edits; default 20

Exit code 0: clean; 1: a field was lost, or a write was refused without a reason; 2: wrong options.`

const OPTIONS = {
  help: { type: 'boolean', short: 'h', default: false },
  minutes: { type: 'string', default: '30' },
  seed: { type: 'string', default: String(Math.floor(Math.random() * 1e6)) },
  objects: { type: 'string', default: '10000' },
  'per-second': { type: 'string', default: '20' },
} as const

const REPLICAS = 2
/** When the new version is stored, and when objects are migrated, as a share of the time. */
const [STORED, MIGRATED] = [0.1, 0.2]
const AGAIN_MS = 2000
/** The first try of a step is killed after so long. */
const KILLED_MS = 20_000
const PARTIAL = 'fairlead.dev/partial'

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
  const perSecond = positive('--per-second', given['per-second'])
  say(`seed ${seed}: the same faults again with --seed ${seed}`)
  await using place = await openPlace()
  const { kube, certificates } = place
  const { first, second } = await writeReleases(certificates)
  const lives: FairleadProcess[] = []
  await using replicas = new Replicas(place, (port) => {
    const args = ['admit', '-f', second, '--tls', certificates, '--address', `127.0.0.1:${port}`]
    const started = startFairlead(args, { LOG_LEVEL: 'info' })
    lives.push(started)
    return started
  })
  await replicas.behindService(REPLICAS)
  await place.run('install', '-f', first)
  const edits = new PageEdits(place, randomFrom(seed + 1))
  await edits.create(objects)
  say(`${objects} objects are stored as v1beta1`)
  const stop = new AbortController()
  const editing = edits.during(stop.signal, perSecond)
  const next = ['versions', '-f', second, '--next']
  await place.run(...next)
  edits.versions = VERSIONS
  say('both versions are served')
  const began = performance.now()
  const at = (share: number) => sleep(Math.max(0, began + share * minutes * 60_000 - performance.now()))
  const told = {
    wrong: (what: string) => {
      say(what)
      edits.wrong.push(what)
    },
    say: (line: string) => {
      const { edits: accepted, repeated, refusals } = edits
      const last = refusals.at(-1)?.because.slice(-200)
      say(`${line}; ${accepted} edits, ${repeated} sent again, ${refusals.length} refused, the last: ${last}`)
    },
  }
  const faulting = faultsUntil(stop.signal, { place, replicas }, randomFrom(seed), told)
  await at(STORED)
  await untilDone(place, next, (stored) => stored.at(-1) === 'v1', say)
  await untilInstalled(place, second, say)
  await at(MIGRATED)
  await untilDone(place, next, (stored) => stored.join() === 'v1', say)
  say('all objects are stored as v1')
  await at(1)
  stop.abort()
  const [, had] = await Promise.all([editing, faulting])
  const { wanted, refusals, repeated } = edits
  const shown = { v1: await shownOf(kube, 'v1'), v1beta1: await shownOf(kube, 'v1beta1') }
  // What is stored as v1 can be read as v1 without a webhook.
  await replicas.kill(REPLICAS)
  await shownOf(kube, 'v1')
  const judged = wrongIn({
    wanted,
    shown: { v1: shown.v1.seen, v1beta1: shown.v1beta1.seen },
    partial: [...shown.v1.partial, ...shown.v1beta1.partial],
    storedVersions: await storedVersionsIn(kube),
    refusals,
    faults: had,
  })
  const wrong = [...edits.wrong, ...judged]
  const evidence = wrong.length > 0 ? keep(wrong, lives) : undefined
  const figures = [
    ['edits', String(edits.edits)],
    ['of them whole objects without annotations', String(edits.bare)],
    ['refused during a fault, and sent again', String(refusals.length)],
    ['not answered, and sent again', String(repeated)],
    ['objects compared field by field, in each of two versions', String(wanted.size)],
  ]
  const about = `Soak of webhooks, seed ${seed}, ${minutes} minutes, ${objects} objects`
  const lines = [about, '', ...table(figures), '', ...table(faultRows(had)), '', ...endOf(wrong, evidence)]
  process.stdout.write(`\n${lines.join('\n')}\n`)
  return wrong.length === 0
}

/** Takes a step of versions again and again until it is done: a fault may end it, and so does kill -9, once. */
async function untilDone(
  { kube, kubeconfig }: WebhookPlace,
  command: string[],
  isDone: (stored: readonly string[]) => boolean,
  say: (line: string) => void,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    await using step = startFairlead(command, { KUBECONFIG: kubeconfig, LOG_LEVEL: 'silent' })
    if (tries === 1) void sleep(KILLED_MS, undefined, { ref: false }).then(() => step.kill('SIGKILL'))
    const { code, signal } = await step.exited
    const ended = step.logs.at(-1)?.msg ?? ''
    say(`fairlead ${command.slice(-1)}, ${tries}: ${code ?? signal}: ${ended.slice(0, 300)}`)
    const stored = await storedVersionsIn(kube).catch(() => [])
    if (isDone(stored)) return
    await sleep(AGAIN_MS)
  }
}

async function untilInstalled(place: WebhookPlace, module: string, say: (line: string) => void): Promise<void> {
  for (;;)
    try {
      return void (await place.run('install', '-f', module))
    } catch (error) {
      say(`${error}`.slice(0, 300))
      await sleep(AGAIN_MS)
    }
}

async function storedVersionsIn(kube: KubeClient): Promise<string[]> {
  const { status } = await kube.get<{ status?: { storedVersions?: string[] } }>(DEFINITION)
  return status?.storedVersions ?? []
}

async function shownOf(kube: KubeClient, version: Version) {
  const seen = new Map<string, ReturnType<typeof seenOf>>()
  const partial: string[] = []
  for await (const { items } of kube.list<KubeObject>(pathOf(version)))
    for (const object of items) {
      seen.set(object.metadata.name, seenOf(object))
      if (object.metadata.annotations?.[PARTIAL] !== undefined) partial.push(`${object.metadata.name} in ${version}`)
    }
  return { seen, partial }
}

function faultRows(had: readonly Fault[]): string[][] {
  const titles = [...new Set(had.map(({ title }) => title))]
  const rows = titles.map((title) => [title, String(had.filter((one) => one.title === title).length)])
  return [['fault', 'times'], ...rows]
}

/** All findings, and the logs of each process that ever ran. */
function keep(wrong: readonly string[], lives: readonly FairleadProcess[]): string {
  const dir = mkdtempSync(join(tmpdir(), 'fairlead-soak-webhooks-'))
  writeFileSync(join(dir, 'findings.txt'), `${wrong.join('\n')}\n`)
  for (const { pid, logs } of lives)
    writeFileSync(join(dir, `fairlead-${pid}.log`), logs.map((line) => `${JSON.stringify(line)}\n`).join(''))
  return dir
}
