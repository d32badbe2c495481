import { execFile } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { cacheDir, ensureBinaries, progressOn } from '#lab'
import { BIN, startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'
import { blocksOf } from './blocks.ts'

const TYPESCRIPT_MS = 300_000
const stack = new AsyncDisposableStack()
let home: string
/** The folder in which the reader is. */
let cwd: string
let env: Record<string, string>

beforeAll(async () => {
  const programs = await ensureBinaries(['helm', 'kubectl'], progressOn(process.stderr))
  home = await mkdtemp(join(tmpdir(), 'fl-ten-'))
  stack.defer(() => rm(home, { recursive: true, force: true }))
  cwd = home
  // A development cluster of its own, of the programs that are there.
  await mkdir(join(home, 'cache'))
  for (const name of await readdir(cacheDir()))
    if (name !== 'cluster') await symlink(join(cacheDir(), name), join(home, 'cache', name))
  // npx finds the command of the project, or of the clone.
  const installed = 'node_modules/fairlead/cli/bin.js'
  await writeFile(
    join(home, 'npx'),
    `#!/bin/sh\nshift\n[ -f ${installed} ] && exec node ${installed} "$@"\nexec node "${BIN}" "$@"\n`,
  )
  await chmod(join(home, 'npx'), 0o755)
  const path = [
    home,
    dirname(process.execPath),
    dirname(programs('helm')),
    dirname(programs('kubectl')),
    process.env['PATH'],
  ]
  const homes = ['CONFIG', 'CACHE', 'DATA'].map((one) => [`HELM_${one}_HOME`, join(home, 'helm')])
  env = {
    HOME: process.env['HOME'] ?? home,
    PATH: path.join(':'),
    FAIRLEAD_CACHE: join(home, 'cache'),
    npm_config_prefer_offline: 'true',
    npm_config_audit: 'false',
    npm_config_fund: 'false',
    ...Object.fromEntries(homes),
  }
})
afterAll(() => stack.disposeAsync())

async function shell(script: string): Promise<string> {
  const place = join(home, 'cwd')
  const { stdout } = await promisify(execFile)('sh', ['-euc', `${script}\npwd > '${place}'`], { cwd, env })
  return stdout
}

it('by docs/adapters/helm.md, a new chart is an operator in ten minutes', { timeout: TYPESCRIPT_MS * 2 }, async () => {
  const [make, change] = (await blocksOf('adapters/helm')).filter(({ language }) => language === 'sh')
  const [first, dev, ...others] = make?.text.split(/^(npm run dev)$/m) ?? []
  expect([dev, others.join('').trim()]).toEqual(['npm run dev', ''])
  expect(await shell(first ?? '')).toContain('a Web without values has what its chart makes')
  cwd = join(home, 'web-operator')
  // `npm run dev` finds this cluster, and would start one with a node that runs pods.
  await shell('npx fairlead local up --node kwok')
  stack.defer(async () => void (await shell('npx fairlead local down')))
  await using running = startFairlead(['dev', '-f', join(cwd, 'src/index.ts'), '--apply', join(cwd, 'examples')], env)
  const shows = (what: string, text: string) =>
    shell(`eval "$(npx fairlead local env)"; kubectl get ${what} -o yaml`).then(
      (found) => found.includes(text),
      () => false,
    )
  await until(() => shows('web hello', 'InstallSuccessful'))
  expect(await shell(change?.text ?? '')).toMatch(/Get the application URL/)
  await until(() => shows('deployment hello-web', 'replicas: 2'))
  running.kill('SIGTERM')
  await running.exited
})
