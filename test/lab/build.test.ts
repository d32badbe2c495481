import { spawn } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type BinaryName, cacheDir, ensureBinaries, plainProgress, silentProgress } from '#lab'
import { programsWith, until } from './support.ts'

/** An interval of progress lines that no build reaches, so that a slow machine prints the same lines. */
const NEVER_SECONDS = 1_000_000

/** `loopback` is the smallest of all: 0.4 s to build where Go has compiled its packages before, 10 s where not. */
describe('building the servers', () => {
  let dir: string
  let env: Record<string, string | undefined>
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'fl-build-'))
    env = { ...process.env, FAIRLEAD_CACHE: join(dir, 'cache'), KUBEBUILDER_ASSETS: undefined }
  })
  afterEach(() => rm(dir, { recursive: true }))

  it('builds once, with a line when it begins and one when it is done; then it needs no Go and says nothing', async () => {
    const lines: string[] = []
    const progress = plainProgress({ write: (text) => lines.push(text) }, NEVER_SECONDS)
    const first = await ensureBinaries(['loopback'], progress, { env })
    expect(lines.join('')).toMatch(
      /^building from source, once: loopback\nloopback … \(about 2 s\)\n✓ loopback, [\d.]+ s\n$/,
    )
    const spoken = lines.length
    const second = await ensureBinaries(['loopback'], progress, { env: { ...env, PATH: '' } })
    expect(second('loopback')).toBe(first('loopback'))
    expect(lines).toHaveLength(spoken)
  })

  it('is not misled by settings for builds of the user', async () => {
    const odd = { GOFLAGS: '-mod=vendor', GOOS: 'plan9', GOARCH: 'arm', GOWORK: '/no/such/go.work', CGO_ENABLED: '1' }
    const paths = await ensureBinaries(['loopback'], silentProgress, { env: { ...env, ...odd } })
    expect(paths('loopback')).toContain(dir)
  })

  it('lets two that ask at once share one build', async () => {
    const lines: string[] = []
    const progress = plainProgress({ write: (text) => lines.push(text) })
    const [one, two] = await Promise.all([
      ensureBinaries(['loopback'], progress, { env }),
      ensureBinaries(['loopback'], progress, { env }),
    ])
    expect(one('loopback')).toBe(two('loopback'))
    expect(lines.join('')).toContain(`process ${process.pid} is building loopback: waiting for it`)
  })

  it('goes on after a build that was killed with all its compilers, and clears away what that left', async () => {
    await killDuringBuild(env)
    await until(() => programsWith(dir).length === 0)
    const paths = await ensureBinaries(['loopback'], silentProgress, { env })
    expect(await readdir(dirname(paths('loopback')))).toEqual(['loopback'])
  })

  it('ends with all its compilers when it is cancelled, and leaves no incomplete program', async () => {
    await writeFile(join(dir, 'compile'), '#!/bin/sh\nsleep 1000\n', { mode: 0o755 })
    const go = `#!/bin/sh\n[ "$1" != env ] || { printf "go1.99.0\\nlocal\\n"; exit; }\n${dir}/compile & wait\n`
    await writeFile(join(dir, 'go'), go, { mode: 0o755 })
    const [stop, reason] = [new AbortController(), new Error('cancelled')]
    const path = `${dir}:${process.env['PATH']}`
    const built = ensureBinaries(['loopback'], silentProgress, { env: { ...env, PATH: path }, signal: stop.signal })
    await until(() => programsWith(`${dir}/compile`).length === 1)
    stop.abort(reason)
    await expect(built).rejects.toBe(reason)
    await until(() => programsWith(dir).length === 0)
    const [module = ''] = await readdir(join(dir, 'cache/bin'))
    expect(await readdir(join(dir, 'cache/bin', module))).toEqual([])
  })

  it('says which Go is needed, and how to get it, where there is none', async () => {
    await expect(ensureBinaries(['loopback'], silentProgress, { env: { ...env, PATH: dir } })).rejects.toThrow(
      /^Go 1\.26 or newer is needed to build loopback once, and there is no working `go` in PATH\. Install it from/,
    )
  })

  it('says so when Go is too old and may not fetch a newer one', async () => {
    await writeFile(join(dir, 'go'), '#!/bin/sh\nprintf "go1.24.1\\nlocal\\n"\n')
    await chmod(join(dir, 'go'), 0o755)
    await expect(ensureBinaries(['loopback'], silentProgress, { env: { ...env, PATH: dir } })).rejects.toThrow(
      /^Go 1\.26 or newer is needed .* the `go` in PATH is 1\.24\.1\./,
    )
  })

  it('says so when modules cannot be fetched', async () => {
    const offline = { ...env, GOPROXY: 'off', GOMODCACHE: join(dir, 'modules') }
    await expect(ensureBinaries(['loopback'], silentProgress, { env: offline })).rejects.toThrow(
      /^loopback could not be built, because its Go modules could not be fetched\. .*again with network access/,
    )
  })
})

describe('programs that the user has', () => {
  let dir: string
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'fl-prebuilt-'))
  })
  afterEach(() => rm(dir, { recursive: true }))

  /** Creates a folder with programs that only print their versions. */
  async function folderWith(name: string, versions: Partial<Record<BinaryName, string>>): Promise<string> {
    const folder = join(dir, name)
    await mkdir(folder)
    for (const [program, version] of Object.entries(versions))
      await writeFile(join(folder, program), `#!/bin/sh\necho "${program} version ${version}"\n`, { mode: 0o755 })
    return folder
  }

  async function ask(names: BinaryName[], env: Record<string, string>) {
    const lines: string[] = []
    const progress = plainProgress({ write: (text) => lines.push(text) })
    const asked = ensureBinaries(names, progress, { env: { FAIRLEAD_CACHE: join(dir, 'cache'), PATH: '', ...env } })
    const paths = await asked.then(
      (find) => names.map(find),
      (error: Error) => error.message.split(',')[0],
    )
    return { paths, said: lines.join('').trim() }
  }

  it('are taken from KUBEBUILDER_ASSETS first, then from PATH, and are named with their versions', async () => {
    const assets = await folderWith('assets', { etcd: '3.6.4' })
    const path = await folderWith('path', { etcd: '3.7.0', 'nats-server': 'v2.14.5' })
    const { paths, said } = await ask(['etcd', 'nats-server'], { KUBEBUILDER_ASSETS: assets, PATH: path })
    expect(paths).toEqual([join(assets, 'etcd'), join(path, 'nats-server')])
    expect(said.split('\n')).toEqual([
      `taken from KUBEBUILDER_ASSETS, and not built: etcd 3.6.4 (${assets}/etcd)`,
      `taken from PATH, and not built: nats-server 2.14.5 (${path}/nats-server)`,
    ])
  })

  it.each([
    ['1.35.9', 'its version is 1.35.9'],
    ['1.37.0', 'its version is 1.37.0'],
    ['unknown', 'its version is unknown'],
  ])('are not used where the version is %s, and the one that is needed is said', async (version, because) => {
    const path = await folderWith('path', { 'kube-apiserver': version })
    const { paths, said } = await ask(['kube-apiserver'], { PATH: path })
    expect(said).toBe(
      `${path}/kube-apiserver is not used: ${because}, and kube-apiserver 1.36 or newer, older than 1.37, is needed`,
    )
    expect(paths).toMatch(/^Go .* is needed to build kube-apiserver once$/)
  })

  it('stand behind what was built before, and are left alone with FAIRLEAD_PREBUILT=no', async () => {
    const path = await folderWith('path', { 'nats-server': '2.15.9' })
    const built = await ask(['nats-server'], { PATH: path, FAIRLEAD_CACHE: cacheDir() })
    expect(built).toEqual({ paths: [expect.stringContaining(cacheDir())], said: '' })
    const off = await ask(['nats-server'], { PATH: path, KUBEBUILDER_ASSETS: path, FAIRLEAD_PREBUILT: 'no' })
    expect(off).toEqual({ paths: expect.stringMatching(/^Go .* is needed to build nats-server once$/), said: '' })
    const wrong = await ask(['nats-server'], { PATH: path, FAIRLEAD_PREBUILT: 'maybe' })
    expect(wrong.paths).toContain('FAIRLEAD_PREBUILT is "maybe"')
  })
})

async function killDuringBuild(env: Record<string, string | undefined>): Promise<void> {
  const door = new URL('../../packages/lab/index.ts', import.meta.url)
  const script = `
    const { ensureBinaries, plainProgress } = await import(${JSON.stringify(door.href)})
    await ensureBinaries(['loopback'], plainProgress(process.stdout))`
  const builder = spawn(process.execPath, ['--input-type=module', '-e', script], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = new Promise((resolve) => builder.once('exit', resolve))
  for await (const chunk of builder.stdout) {
    if (String(chunk).includes('loopback …')) break
  }
  builder.kill('SIGKILL')
  await exited
}
