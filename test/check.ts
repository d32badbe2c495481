import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { delimiter, join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')

/** Types; lint, and the import rule between rooms; format; exports that nobody uses. */
const CHECKS = ['tsc', 'oxlint', 'biome check .', 'knip']

const all = CHECKS.map(async (command) => {
  const { passed, said } = await check(command)
  console.log(`${said}\n${command}: ${passed ? 'passed' : 'failed'}`.trimStart())
  if (!passed) process.exitCode = 1
})
await Promise.all(all)

/** What it says, in one piece. */
async function check(command: string): Promise<{ passed: boolean; said: string }> {
  const PATH = [join(ROOT, 'node_modules/.bin'), process.env['PATH']].join(delimiter)
  const env = { ...process.env, PATH }
  const child = spawn(command, { cwd: ROOT, shell: true, stdio: ['ignore', 'pipe', 'pipe'], env })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const [code] = (await once(child, 'close')) as [number | null]
  return { passed: code === 0, said: said.trimEnd() }
}
