import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { faultKinds } from './faults.ts'
import { mistreat, type Progress } from './mistreat.ts'
import { type SoakOptions, soakOptions, USAGE, UsageError } from './options.ts'
import { reportOf } from './report.ts'
import { soakWait } from './wait.ts'

/** Between two lines of progress where they cannot be overwritten. */
const EVERY_MS = 30_000

/** `npm run soak -- …`: reports errors of the queue after a long time under faults. Exit code 0: none. */
try {
  const options = soakOptions(process.argv.slice(2))
  if (options.help) process.stdout.write(`${USAGE}\n`)
  const isClean = options.help || (await soakAsTold(options))
  process.exit(isClean ? 0 : 1)
} catch (error) {
  if (!(error instanceof UsageError)) throw error
  process.stderr.write(`${error.message}\n\n${USAGE}\n`)
  process.exit(2)
}

function soakAsTold(options: SoakOptions): Promise<boolean> {
  return options.waitMinutes === undefined ? soakQueue(options) : waitLong(options.waitMinutes)
}

async function soakQueue(options: SoakOptions): Promise<boolean> {
  const { seed, replicas, minutes } = options
  process.stdout.write(`seed ${seed}: the same faults again with --replicas ${replicas} --seed ${seed}\n`)
  const dir = mkdtempSync(join(tmpdir(), `fairlead-soak-${seed}-`))
  const interrupt = interruption()
  const began = performance.now()
  const verdict = await mistreat(dir, options, interrupt, showing(minutes))
  const isClean = verdict.wrong.length === 0
  const report = reportOf(verdict, {
    seed,
    replicas,
    seconds: (performance.now() - began) / 1000,
    interrupted: interrupt.aborted,
    notHad: faultKinds(replicas).flatMap(({ name, lacks }) => (lacks ? `${name}: ${lacks}` : [])),
    evidence: isClean ? undefined : dir,
  })
  process.stdout.write(`\n${report}`)
  if (isClean) rmSync(dir, { recursive: true })
  else writeFileSync(join(dir, 'report.txt'), report)
  return isClean
}

/** Ctrl-C and SIGTERM end the soak with a report; a second signal ends it at once. */
function interruption(): AbortSignal {
  const controller = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.on(signal, () => {
      if (controller.signal.aborted) process.exit(130)
      process.stdout.write('\nstopped: the queue becomes idle, then comes the report (once more: at once, without)\n')
      controller.abort()
    })
  return controller.signal
}

/** One line that is overwritten on a terminal, or a line now and then. */
function showing(minutes: number): (progress: Progress) => void {
  const began = performance.now()
  let shown = 0
  return ({ phase, faults, messages }) => {
    const seconds = (performance.now() - began) / 1000
    const line = `${seconds.toFixed(0)} s of ${(minutes * 60).toFixed(0)}, ${phase}: ${faults} faults, ${messages.toLocaleString('en')} messages stored`
    if (process.stdout.isTTY) process.stdout.write(`\r${line}\u001B[K`)
    else if (performance.now() - shown > EVERY_MS) {
      shown = performance.now()
      process.stdout.write(`${line}\n`)
    }
  }
}

async function waitLong(minutes: number): Promise<boolean> {
  const say = (line: string) => void process.stdout.write(`${new Date().toISOString()} ${line}\n`)
  const wrong = await soakWait(minutes, say)
  for (const what of wrong) process.stdout.write(`- ${what}\n`)
  process.stdout.write(wrong.length === 0 ? 'Clean.\n' : `${wrong.length} VIOLATION(S)\n`)
  return wrong.length === 0
}
