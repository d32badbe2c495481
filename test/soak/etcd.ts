/**
 * `npm run soak etcd [-- --minutes N] [--seed S]`: an EtcdCluster on a real node under random faults, and the tests of etcd
 * that take too long for `npm test`.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { parseArgs } from 'node:util'

const USAGE = `npm run soak etcd -- [--minutes N] [--seed S]

  --minutes N   how long the cluster is mistreated; default 10
  --seed S      of the faults; default by chance, and printed`

const options = {
  help: { type: 'boolean', short: 'h', default: false },
  minutes: { type: 'string', default: '10' },
  seed: { type: 'string' },
} as const

process.exitCode = await soak(process.argv.slice(2))

async function soak(args: string[]): Promise<number> {
  let given: { help: boolean; minutes: string; seed?: string | undefined }
  try {
    given = parseArgs({ args, options }).values
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error))
  }
  const { help, minutes, seed } = given
  if (help) {
    console.log(USAGE)
    return 0
  }
  if (!(Number(minutes) > 0 && Number(minutes) <= 24 * 60))
    return refuse(`--minutes is ${minutes}: it must be above 0 and at most 1440`)
  if (seed !== undefined && !/^\d+$/.test(seed)) return refuse(`--seed is ${seed}: it must be a whole number`)
  const env = {
    ...process.env,
    FAIRLEAD_ETCD_MINUTES: minutes,
    ...(seed !== undefined && { FAIRLEAD_ETCD_SEED: seed }),
  }
  const test = spawn('vitest', ['run', '--no-file-parallelism', 'test/e2e/etcd'], { stdio: 'inherit', env })
  const [code] = (await once(test, 'exit')) as [number | null]
  return code ?? 1
}

function refuse(message: string): number {
  process.stderr.write(`${message}\n\n${USAGE}\n`)
  return 2
}
