// Runs before every npm script that needs the dependencies, with any version of Node.js: installs them when they are
// missing or older than the lock file, and prints that it does. Plain JavaScript that imports only modules of Node.js.
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

const versions = (file) => {
  try {
    const { packages } = JSON.parse(readFileSync(join(root, file), 'utf8'))
    return packages
  } catch {
    return {}
  }
}

/** Every locked package that belongs on this platform is installed in the locked version. */
function upToDate() {
  const wanted = versions('package-lock.json')
  const installed = versions('node_modules/.package-lock.json')
  return Object.entries(wanted).every(
    ([path, { version, optional }]) =>
      path === '' || optional || (path in installed && installed[path].version === version),
  )
}

if (!upToDate()) {
  const started = Date.now()
  console.error('fairlead: installing the npm dependencies (about 30 s) …')
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm'
  const { status, error } = spawnSync(npm, ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd: root,
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  if (status !== 0) {
    console.error(
      `fairlead: npm ci failed${error ? ` (${error.message})` : ''}. The dependencies come from the npm registry: ` +
        'check the network or the registry setting (npm config get registry), then run the command again.',
    )
    process.exit(1)
  }
  console.error(`fairlead: dependencies installed in ${Math.round((Date.now() - started) / 1000)} s`)
}
