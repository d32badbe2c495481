/** `npm run soak adapters [-- …]`: objects change hands between other programs and Fairlead, and back, under load and kill -9. */
import { cpSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { ProcessSpec } from '#lab'
import { worldOn } from '../e2e/world.ts'
import { randomFrom } from '../support/random.ts'
import { startTestCluster, startTestProcesses } from '../support/servers.ts'
import { chartOf } from './adapters/charts.ts'
import { contend } from './adapters/contest.ts'
import { examplesOf, makeVolumes } from './adapters/metacontroller.ts'
import { Sides } from './adapters/sides.ts'
import { Watched } from './adapters/watched.ts'
import { UsageError, valuesOf, whole } from './options.ts'
import { endOf, table } from './report.ts'

const USAGE = `npm run soak adapters -- [--metacontroller PROGRAM --examples DIR] [--helm-operator PROGRAM] [--rounds N] [--seed S]

  --metacontroller PROGRAM   Metacontroller 4.17, with the controllers and hooks of its examples
  --examples DIR             its repository, which has the examples
  --helm-operator PROGRAM    helm-operator of operator-sdk 1.42, with a chart
  --rounds N                 how often the objects change hands, there and back; default 3
  --seed S                   of edits and faults; default by chance, and printed

Exit code 0: clean; 1: a child was lost, or something is not as it should be; 2: wrong options.`

const OPTIONS = {
  help: { type: 'boolean', short: 'h', default: false },
  metacontroller: { type: 'string' },
  examples: { type: 'string' },
  'helm-operator': { type: 'string' },
  rounds: { type: 'string', default: '3' },
  seed: { type: 'string', default: String(Math.floor(Math.random() * 1e6)) },
} as const

const say = (line: string) => void process.stdout.write(`${new Date().toISOString().slice(11, 19)} ${line}\n`)

try {
  const {
    help,
    metacontroller,
    examples,
    'helm-operator': helmOperator,
    ...given
  } = valuesOf(process.argv.slice(2), OPTIONS)
  const [rounds, seed] = [whole('--rounds', given.rounds), whole('--seed', given.seed)]
  if ((metacontroller === undefined) !== (examples === undefined))
    throw new UsageError('--metacontroller and --examples need each other')
  if (!help && metacontroller === undefined && helmOperator === undefined)
    throw new UsageError('name a program to take the place of: --metacontroller or --helm-operator')
  if (help) process.stdout.write(`${USAGE}\n`)
  else {
    let isClean = true
    if (metacontroller !== undefined && examples !== undefined)
      isClean = await soak('Metacontroller', resolve(metacontroller), rounds, seed, resolve(examples))
    if (helmOperator !== undefined)
      isClean = (await soak('helm-operator', resolve(helmOperator), rounds, seed)) && isClean
    process.exitCode = isClean ? 0 : 1
  }
} catch (error) {
  if (!(error instanceof UsageError)) throw error
  process.stderr.write(`${error.message}\n\n${USAGE}\n`)
  process.exitCode = 2
}
process.exit()

async function soak(title: string, program: string, rounds: number, seed: number, clone?: string): Promise<boolean> {
  say(`${title}, seed ${seed}: the same faults again with --seed ${seed}`)
  const random = randomFrom(seed)
  const cluster = startTestCluster({ nats: true, controllers: true, node: 'kwok' })
  await using world = await worldOn(cluster, async () => undefined)
  await using processes = await startTestProcesses()
  const { kube, env } = world
  await using watched = new Watched(kube)
  const KUBECONFIG = env['KUBECONFIG'] ?? ''
  if (clone !== undefined) await makeVolumes(kube, 60)
  await using stack = new AsyncDisposableStack()
  let other: Omit<ProcessSpec, 'name'>
  let contest
  if (clone === undefined) {
    const chart = await chartOf(kube, watched)
    const args = ['run', '--metrics-bind-address=0', '--health-probe-bind-address=0', '--reconcile-period=20s']
    other = { command: program, args, env: { KUBECONFIG, HOME: chart.dir }, cwd: chart.dir }
    contest = chart
  } else {
    const args = [
      '--metrics-address=0',
      '--health-probe-bind-address=0',
      '--discovery-interval=5s',
      '--client-go-qps=100',
    ]
    other = { command: program, args: [...args, '--client-go-burst=200'], env: { KUBECONFIG } }
    contest = stack.use(await examplesOf(clone, kube, watched, randomFrom(seed + 1)))
  }
  const sides = stack.use(new Sides({ other, functions: contest.functions, env, processes, random, say }))
  const { wrong, figures } = await contend(rounds, {
    contest,
    kube,
    watched,
    sides,
    random,
    ofLoad: randomFrom(seed + 2),
    say,
  })
  let evidence: string | undefined
  if (wrong.length > 0) {
    evidence = mkdtempSync(join(tmpdir(), 'fairlead-soak-adapters-'))
    writeFileSync(join(evidence, 'findings.txt'), `${wrong.join('\n')}\n`)
    cpSync(processes.logFile('other'), join(evidence, 'other.log'))
    for (const { pid, logs } of sides.lives)
      writeFileSync(join(evidence, `fairlead-${pid}.log`), logs.map((line) => `${JSON.stringify(line)}\n`).join(''))
  }
  const lines = [`Soak of adapters, ${title}, seed ${seed}, ${rounds} rounds`, '', ...table(figures), '']
  process.stdout.write(`\n${[...lines, ...endOf(wrong, evidence)].join('\n')}\n`)
  return wrong.length === 0
}
