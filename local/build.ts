import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { availableParallelism, homedir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Binary, type BinaryName, binaries, linkerFlags, needsC } from './binaries.ts'
import { BuildShares, secondsOf } from './build-shares.ts'
import { isExecutable } from './executable.ts'
import {
  type Environment,
  goEnvironment,
  goVersionOf,
  isNetworkFailure,
  newest,
  requireGo,
  runGo,
} from './go-toolchain.ts'
import { withLock } from './lock.ts'
import { given, onPath } from './prebuilt.ts'
import type { Progress } from './progress.ts'

const modulesDir = fileURLToPath(new URL('./go', import.meta.url))

/** Modules that are built at the same time: while one links on one core, another one compiles. */
const LANES = 2

export interface BuildOptions {
  /**
   * Default: the environment of this process. PATH, KUBEBUILDER_ASSETS, FAIRLEAD_PREBUILT, FAIRLEAD_CACHE and
   * XDG_CACHE_HOME are read.
   */
  env?: Environment
  signal?: AbortSignal
}

export type BinaryPaths = (name: BinaryName) => string

/**
 * Finds the named servers in KUBEBUILDER_ASSETS, else among earlier builds in the user's cache, else in PATH, and
 * builds the others. Several processes may call it at the same time; a killed build leaves no incomplete program. Only
 * a build needs Go, and the network for modules that Go has not fetched yet.
 */
export async function ensureBinaries(
  names: readonly BinaryName[],
  progress: Progress,
  { env = process.env, signal }: BuildOptions = {},
): Promise<BinaryPaths> {
  const wanted = [...new Set(names)]
  const found = await given(wanted, env, progress)
  const unbuilt = wanted.filter((name) => !found.has(name) && !isExecutable(builtPath(name, env)))
  for (const [name, path] of await onPath(unbuilt, env, progress)) found.set(name, path)
  const missing = unbuilt.filter((name) => !found.has(name))
  if (missing.length > 0) await build(missing, { env, progress, signal })
  return (name) => {
    if (!wanted.includes(name))
      throw new Error(`${name} is used but was not asked for: add it to the list of what to build`)
    return found.get(name) ?? builtPath(name, env)
  }
}

interface Build {
  env: Environment
  progress: Progress
  signal: AbortSignal | undefined
}

async function build(names: BinaryName[], how: Build): Promise<void> {
  const ofModule = Map.groupBy(names, (name) => binaries[name].module)
  const needed = newest([...ofModule.keys()].map((module) => goVersionOf(join(modulesDir, module, 'go.mod'))))
  await requireGo(needed, names.join(', '), how.env)
  how.progress.line(`building from source, once: ${names.join(', ')}`)
  const task = how.progress.task(names.length === 1 ? names.join() : 'servers', secondsOf(names))
  const shares = new BuildShares(names, (share) => task.reached(share))
  // The longest builds come first, so that short ones fill both lanes at the end.
  const modules = [...ofModule].toSorted(([, one], [, other]) => secondsOf(other) - secondsOf(one))
  try {
    await inLanes(LANES, modules, ([module, programs]) => buildModule(module, programs, shares.of(programs), how))
    task.done()
  } catch (error) {
    task.failed()
    throw error
  }
}

type Share = ReturnType<BuildShares['of']>

async function buildModule(module: Binary['module'], names: BinaryName[], share: Share, how: Build): Promise<void> {
  const dir = moduleCacheDir(module, how.env)
  mkdirSync(dir, { recursive: true })
  const onWait = ({ pid }: { pid: number }): void =>
    how.progress.line(`process ${pid} is building ${names.join(', ')}: waiting for it`)
  await withLock(join(dir, '.lock'), onWait, async () => {
    removeLeftovers(dir)
    const missing = names.filter((name) => !isExecutable(join(dir, name)))
    if (missing.length > 0) await buildTogether(missing, dir, share, how)
  })
  share.done()
}

/**
 * Builds several programs with one `go build`: shared packages are compiled once, and one program compiles while
 * another one links.
 */
async function buildTogether(names: BinaryName[], dir: string, share: Share, { env, signal }: Build): Promise<void> {
  const [{ module }] = names.map((name) => binaries[name]) as [Binary]
  const temporary = join(dir, `${LEFTOVER}${process.pid}`)
  mkdirSync(temporary, { recursive: true })
  try {
    const args = ['build', '-v', '-trimpath', '-p', String(availableParallelism()), '-ldflags', linkerFlags(module)]
    await runGo([...args, '-o', `${temporary}/`, ...names.map((name) => binaries[name].package)], {
      cwd: join(modulesDir, module),
      env: goEnvironment(env, { CGO_ENABLED: needsC(module) ? '1' : '0', GOTMPDIR: temporary }),
      onLine: (line) => share.line(line),
      ...(signal ? { signal } : {}),
    })
    for (const name of names) renameSync(join(temporary, outputOf(name)), join(dir, name))
  } catch (cause) {
    throw explained(names.join(', '), cause)
  } finally {
    rmSync(temporary, { recursive: true, force: true })
  }
}

/** Returns the file name that `go build` gives a program: the last part of its path that is not a version. */
function outputOf(name: BinaryName): string {
  const path = binaries[name].package
  return path === '.' ? name : (path.split('/').findLast((part) => !/^v\d+$/.test(part)) ?? name)
}

function explained(name: string, cause: unknown): Error {
  if (isNetworkFailure(cause)) {
    const again = 'Finished downloads and compiled packages are kept: run the same command again with network access'
    return new Error(`${name} could not be built, because its Go modules could not be fetched. ${again}.`, { cause })
  }
  return new Error(`${name} could not be built: ${cause instanceof Error ? cause.message : String(cause)}`, { cause })
}

const LEFTOVER = '.build-'

/** Removes files of killed builds. Only the holder of the lock builds, so these files are unused. */
function removeLeftovers(dir: string): void {
  for (const entry of readdirSync(dir)) {
    if (entry.startsWith(LEFTOVER)) rmSync(join(dir, entry), { recursive: true, force: true })
  }
}

const builtPath = (name: BinaryName, env: Environment): string => join(moduleCacheDir(binaries[name].module, env), name)

function moduleCacheDir(module: Binary['module'], env: Environment): string {
  return join(cacheDir(env), 'bin', `${module}-${fingerprint(module)}`)
}

/** Returns FAIRLEAD_CACHE, or `fairlead` in the user's cache folder. */
export function cacheDir(env: Environment = process.env): string {
  return env['FAIRLEAD_CACHE'] || join(env['XDG_CACHE_HOME'] || join(env['HOME'] || homedir(), '.cache'), 'fairlead')
}

/** Returns a hash of all inputs of a build: versions, the Go source of Fairlead, flags, platform. */
function fingerprint(module: Binary['module']): string {
  const dir = join(modulesDir, module)
  const hash = createHash('sha256').update(
    `${process.platform} ${process.arch} ${linkerFlags(module)} ${needsC(module)}`,
  )
  for (const file of readdirSync(dir).sort()) hash.update(`\0${file}\0`).update(readFileSync(join(dir, file)))
  return hash.digest('hex').slice(0, 12)
}

async function inLanes<T>(lanes: number, items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = [...items]
  const lane = async (): Promise<void> => {
    for (let item = rest.shift(); item !== undefined; item = rest.shift()) await work(item)
  }
  await Promise.all(Array.from({ length: lanes }, lane))
}
