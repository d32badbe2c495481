import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { nextVersion, releaseChangelog } from '../../packages/release/prepare.ts'
import { publish } from '../../packages/release/publish.ts'
import { helmIn } from '../support/helm.ts'
import { PACKED_WITHIN_MS, packedPackage } from '../support/package.ts'

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, '../..')

describe('the next version', () => {
  it.each([
    ['major', '1.0.0'],
    ['minor', '0.3.0'],
    ['patch', '0.2.4'],
    ['0.2.10', '0.2.10'],
    ['1.0.0', '1.0.0'],
  ])('after 0.2.3, %s, is %s', (wanted, expected) => expect(nextVersion('0.2.3', wanted)).toBe(expected))

  it.each(['0.2.3', '0.2.2', '0.1.9', '0.0.9'])('is not %s after 0.2.3: it would not be higher', (wanted) =>
    expect(() => nextVersion('0.2.3', wanted)).toThrow(`${wanted} is not higher than 0.2.3`),
  )

  it.each(['', 'Minor', '0.3', 'v0.3.0', '0.3.0-beta', '00.3.0', '0.3.0 '])('is not %j', (wanted) =>
    expect(() => nextVersion('0.2.3', wanted)).toThrow('give major, minor, patch or three numbers'),
  )
})

describe('the changelog', () => {
  const before = '# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 (2026-01-01)\n\n- old\n'

  it('gives what is unreleased to the version, and begins a new part above it', () => {
    const { text, changes } = releaseChangelog(before, '0.2.0', '2026-02-03')
    expect(changes).toBe('- new')
    expect(text).toBe(
      '# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-02-03)\n\n- new\n\n## 0.1.0 (2026-01-01)\n\n- old\n',
    )
    expect(() => releaseChangelog(text, '0.3.0', '2026-02-03')).toThrow('has nothing under "Unreleased"')
  })

  it('of the first release is text without a release before', () => {
    const { text, changes } = releaseChangelog('## Unreleased\n- all\n', '0.1.0', '2026-02-03')
    expect([text, changes]).toEqual(['## Unreleased\n\n## 0.1.0 (2026-02-03)\n\n- all\n', '- all'])
  })

  it('needs its heading', () =>
    expect(() => releaseChangelog('# Changelog\n', '0.2.0', '2026-02-03')).toThrow('has no heading "## Unreleased"'))
})

const release = (...args: string[]) => run(process.execPath, ['packages/release/main.ts', ...args], { cwd: ROOT })
const changed = async () => (await run('git', ['status', '--porcelain'], { cwd: ROOT })).stdout

describe('release prepare', () => {
  it('--dry-run prints what it would do, and changes nothing', async () => {
    const before = await changed()
    const { stdout } = await release('prepare', '99.0.0', '--dry-run')
    expect(stdout.split('\n').filter((line) => line.startsWith('would: '))).toEqual([
      'would: npm version 99.0.0 --no-git-tag-version --workspace=create-fairlead --include-workspace-root',
      expect.stringMatching(/^would: CHANGELOG.md: 99.0.0 \(\d{4}-\d\d-\d\d\)$/),
      'would: test/release/previous: the code of 99.0.0',
      'would: npm run generate',
      'would: git add --all',
      'would: git commit --message "Release 99.0.0"',
      'would: git tag --annotate v99.0.0 --message "fairlead 99.0.0"',
    ])
    expect(await changed()).toBe(before)
  })

  it('refuses a version that is not higher', async () => {
    const refused = await release('prepare', '0.0.1').catch((error: unknown) => error)
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^release: 0\.0\.1 is not higher than .*\n$/),
    })
  })
})

describe('release publish', () => {
  let to: string
  beforeAll(async () => {
    to = await mkdtemp(join(tmpdir(), 'fl-release-'))
  })
  afterAll(() => rm(to, { recursive: true, force: true }))

  it(
    '--dry-run makes all files and their digests, and publishes none',
    async () => {
      const { folder, create } = await packedPackage()
      const { version } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as { version: string }
      const said: string[] = []
      const say = (line: string) => void said.push(line)
      const registry = 'registry.example/fairlead'
      await publish({ folders: [folder, create], version, dryRun: true, provenance: true, registry, say, to })
      const packages = [`fairlead-${version}.tgz`, `create-fairlead-${version}.tgz`]
      const charts = [`charts/fairlead-${version}.tgz`, `charts/fairlead-functions-${version}.tgz`]
      const lines = await Promise.all(
        [...packages, ...charts].map(async (name) => {
          const digest = createHash('sha256')
            .update(await readFile(join(to, name)))
            .digest('hex')
          return `${digest}  ${name}`
        }),
      )
      const sums = (await readFile(join(to, 'SHA256SUMS'), 'utf8')).trim().split('\n')
      expect(sums.toSorted()).toEqual(lines.toSorted())
      expect(said.filter((line) => line.startsWith('would: '))).toEqual([
        ...packages.map((name) => `would: npm publish --access public --provenance ${join(to, name)}`),
        expect.stringMatching(/^would: git init --quiet \S+\/build\/func$/),
        expect.stringMatching(/^would: git -C \S+ add --all$/),
        expect.stringContaining(` commit --quiet --message "fairlead ${version}"`),
        expect.stringMatching(/^would: git fetch --quiet \S+ HEAD$/),
        'would: git push --force origin FETCH_HEAD:refs/heads/func',
        expect.stringMatching(/^would: npm install --prefix \S+ --ignore-scripts \S+\/fairlead-[\d.]+\.tgz$/),
        expect.stringContaining(` --include package.json --push ${registry}/fairlead:${version}`),
        ...charts.map((name) => `would: helm push ${join(to, name)} oci://${registry}/charts`),
      ])
      const helm = await helmIn(to)
      for (const chart of charts)
        expect(await helm(['show', 'chart', join(to, chart)])).toContain(`\nversion: ${version}\n`)
    },
    PACKED_WITHIN_MS,
  )
})
