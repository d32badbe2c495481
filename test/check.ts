import { spawn } from 'node:child_process'
import { once } from 'node:events'

/** Types, lint with the rule between rooms, format, dead exports: side by side, each with its output in one piece. */
const CHECKS = ['tsc', 'oxlint', 'biome check .', 'knip']

async function passes(command: string): Promise<boolean> {
  const child = spawn(command, { shell: true, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const [code] = (await once(child, 'close')) as [number | null]
  console.log(`${output.trimEnd()}\n${command}: ${code === 0 ? 'passed' : 'failed'}`.trimStart())
  return code === 0
}

const passed = await Promise.all(CHECKS.map(passes))
if (passed.includes(false)) process.exitCode = 1
