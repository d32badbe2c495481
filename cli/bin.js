#!/usr/bin/env node
// Starts the command from its TypeScript source. Node.js runs TypeScript itself from 24.12 on; with an older one on
// the PATH the version that the project installed is used.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const [major, minor] = process.versions.node.split('.').map(Number)
const runsTypeScript = major > 24 || (major === 24 && minor >= 12)

if (runsTypeScript) {
  const { main } = await import('./index.ts')
  await main(process.argv)
} else {
  const here = dirname(fileURLToPath(import.meta.url))
  const node = join(dirname(here), 'node_modules', '.bin', 'node')
  if (!existsSync(node)) {
    console.error(
      `fairlead: Node.js 24.12 or newer is needed (this is ${process.versions.node}), and npm has not installed it: run npm ci`,
    )
    process.exit(2)
  }
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
  child.on('exit', (code, signal) => process.exit(code ?? (signal === 'SIGINT' ? 130 : 143)))
}
