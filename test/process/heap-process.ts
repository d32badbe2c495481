/** Allocates and drops a few hundred MiB, and prints the resident memory before and after an idle time. */
import { once } from 'node:events'
import process, { memoryUsage } from 'node:process'
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import { releaseMemoryWhenIdle } from '../../cli/process/runtime.ts'

const residentMiB = () => Math.round(memoryUsage.rss() / 2 ** 20)
await sleep(200)
using _heap = releaseMemoryWhenIdle(50)
if (process.argv[2] === 'idle') await sleep(200)
let kept: object[] = []
for (let number = 0; number < 2_000_000; number++) {
  kept.push({ number, text: `text ${number}` })
  if (number % 100_000 === 0) await turn()
}
const full = residentMiB()
kept = []
process.stdout.write(`${full}\n`)
process.stdin.resume()
process.stdin.on('data', () => process.stdout.write(`${residentMiB()}\n`))
await once(process.stdin, 'end')
