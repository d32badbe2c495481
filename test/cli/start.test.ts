import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'

const isOlder = (node: string): boolean =>
  existsSync(node) && Number(/^v(\d+)/.exec(execFileSync(node, ['--version'], { encoding: 'utf8' }))?.[1]) < 24

/** One that the machine has beside the one of the project. */
const older = (process.env['PATH'] ?? '')
  .split(delimiter)
  .filter((folder) => folder !== '' && !folder.includes('node_modules'))
  .map((folder) => join(folder, 'node'))
  .find(isOlder)

const fileOf = (name: string): string => fileURLToPath(new URL(`../../cli/${name}`, import.meta.url))

it.skipIf(older === undefined)('an older Node.js on the PATH starts the one that the project installed', () => {
  const { version } = JSON.parse(readFileSync(fileOf('../package.json'), 'utf8')) as { version: string }
  expect(execFileSync(older ?? '', [fileOf('bin.js'), '--version'], { encoding: 'utf8' }).trim()).toBe(version)
})

it.each([
  ['of this project', process.execPath],
  ['on the PATH, which is older', older],
])('under npm, whose shell keeps a signal for itself, it ends with the shell: Node.js %s', async (_, node) => {
  if (node === undefined) return
  // The last command of a shell may take its place; this one is not the last.
  const shell = spawn('sh', ['-c', '"$@"; true', 'sh', node, fileOf('bin.js'), 'serve', 'at', '--port', '0'], {
    env: { ...process.env, npm_lifecycle_event: 'npx', LOG_FORMAT: 'json' },
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
  })
  try {
    let log = ''
    // It is closed when the last process that has it has ended.
    const closed = once(shell.stderr, 'close')
    const serving = new Promise<void>((resolve) =>
      shell.stderr.on('data', (chunk: Buffer) => {
        log += chunk.toString()
        if (log.includes('"serving"')) resolve()
      }),
    )
    await Promise.race([serving, closed])
    shell.kill('SIGTERM')
    await closed
    expect(log).toContain('"because":"SIGTERM"')
  } finally {
    // Its group is gone if all is well.
    if (shell.pid !== undefined) spawnSync('kill', ['-9', '--', `-${shell.pid}`])
  }
})

/** It runs a command at a terminal of its own. */
const SCRIPT = '/usr/bin/script'
/** Loaded in place of a function: counts signals until SIGTERM. */
const COUNTS = `process.on('SIGINT', () => console.log('one SIGINT'))
process.on('SIGTERM', () => process.exit(7))
console.log('counting')
setInterval(() => {}, 1000)
await new Promise(() => {})`
/** Loaded into the older Node.js: prints what it sends to the other one, and when it is through with Ctrl-C. */
const TELLS = `import { ChildProcess } from 'node:child_process'
const { kill } = ChildProcess.prototype
ChildProcess.prototype.kill = function (signal) {
  console.log('passes on ' + signal)
  return kill.call(this, signal)
}
process.on('SIGINT', () => setImmediate(() => console.log('through')))`

it.skipIf(older === undefined || !existsSync(SCRIPT) || process.platform !== 'linux')(
  'Ctrl-C at a terminal reaches the one that an older Node.js has started once, whatever its standard input is',
  async () => {
    const dir = mkdtempSync(join(tmpdir(), 'fl-start-'))
    const [file, tells] = [join(dir, 'counts.ts'), join(dir, 'tells.mjs')]
    writeFileSync(file, COUNTS)
    writeFileSync(tells, TELLS)
    const command = [older, '--import', tells, fileOf('bin.js'), 'serve', '-f', file]
    const words = command.map((word) => `'${word}'`).join(' ')
    // It makes a terminal, and ends with the exit code of the command.
    const terminal = spawn(SCRIPT, ['-qec', `echo pid=$$; exec ${words} </dev/null 2>&1`, '/dev/null'], {
      stdio: ['pipe', 'pipe', 'ignore'],
    })
    try {
      let log = ''
      const closed = once(terminal, 'close')
      const printed = (text: string) => {
        const is = new Promise<void>((resolve) => {
          terminal.stdout.on('data', () => log.includes(text) && resolve())
        })
        return Promise.race([is, closed])
      }
      terminal.stdout.on('data', (chunk: Buffer) => (log += chunk.toString()))
      await printed('counting')
      const told = Promise.all([printed('one SIGINT'), printed('through')])
      terminal.stdin.write('\u0003')
      await told
      process.kill(Number(/pid=(\d+)/.exec(log)?.[1]), 'SIGTERM')
      expect(await closed).toEqual([7, null])
      expect(log.match(/one SIGINT|passes on \w+/g)).toEqual(['one SIGINT', 'passes on SIGTERM'])
    } finally {
      terminal.kill('SIGKILL')
      rmSync(dir, { recursive: true })
    }
  },
)

const OLD = 'dirname existsSync fileURLToPath homedir join mkdirSync readFileSync spawn spawnSync'.split(' ')

it.each(['bin.js', 'setup.js'])('%s imports by name only what Node.js 20 has, whichever runs this', (name) => {
  const text = readFileSync(fileOf(name), 'utf8')
  const named = [...text.matchAll(/^import \{ (.+) \} from 'node:/gm)].flatMap(([, names = '']) => names.split(', '))
  expect(named.length).toBeGreaterThan(3)
  expect(named.filter((one) => !OLD.includes(one))).toEqual([])
})
