/**
 * `npm run soak etcd [-- --minutes N] [--seed S]`: an EtcdCluster on a real node under random faults, and the tests of etcd
 * that take too long for `npm test`.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { positive, UsageError, valuesOf } from './options.ts'

const USAGE = `npm run soak etcd -- [--minutes N] [--seed S]

  --minutes N   how long the cluster is mistreated; default 10
  --seed S      of the faults; default by chance, and printed`

const options = {
  help: { type: 'boolean', short: 'h', default: false },
  minutes: { type: 'string', default: '10' },
  seed: { type: 'string' },
} as const

try {
  process.exitCode = await soak(valuesOf(process.argv.slice(2), options))
} catch (error) {
  if (!(error instanceof UsageError)) throw error
  process.stderr.write(`${error.message}\n\n${USAGE}\n`)
  process.exitCode = 2
}

async function soak({ help, minutes, seed }: { help: boolean; minutes: string; seed?: string }): Promise<number> {
  if (help) {
    console.log(USAGE)
    return 0
  }
  if (seed !== undefined && !/^\d+$/.test(seed)) throw new UsageError(`--seed is ${seed}: it must be a whole number`)
  const env = {
    ...process.env,
    FAIRLEAD_ETCD_MINUTES: String(positive('--minutes', minutes)),
    ...(seed !== undefined && { FAIRLEAD_ETCD_SEED: seed }),
  }
  const test = spawn('vitest', ['run', '--no-file-parallelism', 'test/e2e/etcd'], { stdio: 'inherit', env })
  const [code] = (await once(test, 'exit')) as [number | null]
  return code ?? 1
}
