import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { command } from '../support/command.ts'
import { helm, projectOf, WEB } from './charts.ts'

const ROOT = join(import.meta.dirname, '../..')
const run = promisify(execFile)

it('fairlead new --helm makes a project of a chart, names what is unstable in it, and its test passes', async () => {
  const random = { ...WEB, 'templates/id.yaml': '{{ $_ := uuidv4 }}' }
  const project = join(await mkdtemp(join(tmpdir(), 'fl-new-helm-')), 'shop-operator')
  const chart = join(await projectOf(random), 'helm-charts/web')
  const made = await command(['new', project, '--helm', chart, '--group', 'shops.test', '--kind', 'Shop'])
  expect([made.code, made.stderr]).toEqual([0, ''])
  expect(made.stdout).toContain(`${project}/helm-charts/web/\n`)
  expect(made.stdout).toMatch(/templates\/id.yaml:1: uuidv4: a value is drawn when its object is created/)
  const textOf = (path: string) => readFile(join(project, path), 'utf8')
  expect(await textOf('watches.yaml')).toBe(
    '- group: shops.test\n  version: v1\n  kind: Shop\n  chart: helm-charts/web\n',
  )
  expect(await textOf('helm-charts/web/templates/id.yaml')).toBe(random['templates/id.yaml'])
  expect(await textOf('examples/shop.yaml')).toContain('kind: Shop')
  await mkdir(join(project, 'node_modules'))
  await symlink(ROOT, join(project, 'node_modules/fairlead'))
  const env = { ...process.env, PATH: [dirname(helm), process.env['PATH']].join(delimiter) }
  const { stdout } = await run(process.execPath, ['--test', 'src/index.test.ts'], { cwd: project, env })
  expect(stdout).toContain('a Shop without values has what its chart makes')
})

it.each([
  [['--helm', 'none'], 'cannot read the chart '],
  [['--helm', ROOT], 'is not a chart: it has no Chart.yaml'],
  [['--helm', 'none', '--template', 'objects'], "cannot be used with option '--template <name>'"],
])('fairlead new %j is refused', async (args, message) => {
  const { code, stderr } = await command(['new', join(tmpdir(), 'fl-never'), ...args])
  expect([code, stderr]).toEqual([2, expect.stringContaining(message)])
})
