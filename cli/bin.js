#!/usr/bin/env node
// Starts the command. Node.js runs the TypeScript of Fairlead and of its users from 24.12 on. With an older version on
// PATH, the script starts the version that the project has installed, so its imports must exist in older versions too.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import module from 'node:module'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const [major, minor] = process.versions.node.split('.').map(Number)
const runsTypeScript = major > 24 || (major === 24 && minor >= 12)

if (runsTypeScript) {
  // Node.js looks up half as many names at a time, and a dead one takes 10 s. A thread that waits needs 10 KiB.
  process.env['UV_THREADPOOL_SIZE'] ||= '32'
  keepWhatIsCompiled()
  const { endWithShell, main } = await import('./index.ts')
  endWithShell(process.env)
  await main(process.argv)
  // A server that accepts a connection of the NATS client (3.4.0) and then sends nothing keeps the connection open, and
  // with it this process, forever.
  if (process.exitCode) process.exit()
} else {
  // The root of the clone, or of the project in which the package is installed.
  const root = dirname(dirname(fileURLToPath(import.meta.url)))
  const node = [join(root, 'node_modules', '.bin', 'node'), join(dirname(root), '.bin', 'node')].find(existsSync)
  if (node === undefined) {
    const way = existsSync(join(root, 'package-lock.json'))
      ? 'run npm ci'
      : 'install it, or run npm install node@24 here'
    console.error(`fairlead: Node.js 24.12 or newer is needed, and this is ${process.versions.node}: ${way}`)
    process.exit(2)
  }
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: 'inherit' })
  let isStopping = false
  const isOnTerminal = [process.stdin, process.stdout, process.stderr].some(({ isTTY }) => isTTY)
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
    process.on(signal, () => {
      isStopping = true
      // A terminal sends the others to the child too, which ends at once at a second signal.
      if (signal === 'SIGTERM' || !isOnTerminal) child.kill(signal)
    })
  // As endWithShell() in process/exit.ts.
  const shell = process.ppid
  const look = () => process.ppid === shell || isStopping || child.kill('SIGTERM')
  if (process.env.npm_lifecycle_event) setInterval(look, 500).unref()
  child.on('exit', (code, signal) => process.exit(code ?? (signal === 'SIGINT' ? 130 : 143)))
}

/**
 * Enables the compile cache: a start then takes half the time and 20 MiB less. Without a cache folder, it does nothing.
 * The folder is created one level at a time: Node.js 24 loops forever if a parent cannot exist (/proc/x).
 */
function keepWhatIsCompiled() {
  const { FAIRLEAD_CACHE, XDG_CACHE_HOME, NODE_COMPILE_CACHE } = process.env
  const root = FAIRLEAD_CACHE || join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'fairlead')
  const folder = join(root, 'compiled')
  if (NODE_COMPILE_CACHE) return
  for (const part of [dirname(root), root, folder])
    try {
      mkdirSync(part)
    } catch {}
  if (!existsSync(folder)) return
  module.enableCompileCache(folder)
  // The cache of the processes and threads that this process starts.
  process.env['NODE_COMPILE_CACHE'] = folder
}
