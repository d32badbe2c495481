import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { availableParallelism, homedir } from 'node:os'
import { delimiter, isAbsolute, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Binary, type BinaryName, binaries, linkerFlags, needsC } from './binaries.ts'
import {
  type Environment,
  goEnvironment,
  goVersionOf,
  isAtLeast,
  isExecutable,
  isNetworkFailure,
  isPackagePath,
  newest,
  requireGo,
  runGo,
} from './go-toolchain.ts'
import { withLock } from './lock.ts'
import { type Progress, silentProgress } from './progress.ts'

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
  /** Called before programs are built. */
  onBuild?: () => void
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
  { env = process.env, signal, onBuild }: BuildOptions = {},
): Promise<BinaryPaths> {
  const wanted = [...new Set(names)]
  const { found, missing } = await lookFor(wanted, env, progress)
  if (missing.length > 0) await build(missing, { env, progress, signal, onBuild })
  return (name) => {
    if (!wanted.includes(name))
      throw new Error(`${name} is used but was not asked for: add it to the list of what to build`)
    return found.get(name) ?? builtPath(name, env)
  }
}

/** Returns the programs among these that {@link ensureBinaries} would build. */
export async function unbuiltBinaries(names: readonly BinaryName[]): Promise<BinaryName[]> {
  return (await lookFor(names, process.env, silentProgress)).missing
}

async function lookFor(
  names: readonly BinaryName[],
  env: Environment,
  progress: Progress,
): Promise<{ found: Found; missing: BinaryName[] }> {
  const found = await given(names, env, progress)
  const unbuilt = names.filter((name) => !found.has(name) && !isExecutable(builtPath(name, env)))
  for (const [name, path] of await onPath(unbuilt, env, progress)) found.set(name, path)
  return { found, missing: unbuilt.filter((name) => !found.has(name)) }
}

interface Build {
  env: Environment
  progress: Progress
  signal: AbortSignal | undefined
  onBuild: (() => void) | undefined
}

async function build(names: BinaryName[], how: Build): Promise<void> {
  const ofModule = Map.groupBy(names, (name) => binaries[name].module)
  const needed = newest([...ofModule.keys()].map((module) => goVersionOf(join(modulesDir, module, 'go.mod'))))
  await requireGo(needed, names.join(', '), how.env)
  how.onBuild?.()
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

/** The linker leaves out what debuggers need (-w). A compiler that does not write it needs a tenth less time. */
export const WITHOUT_DWARF = '-gcflags=all=-dwarf=false'

/**
 * Builds several programs with one `go build`: shared packages are compiled once, and one program compiles while
 * another one links.
 */
async function buildTogether(names: BinaryName[], dir: string, share: Share, { env, signal }: Build): Promise<void> {
  const [{ module }] = names.map((name) => binaries[name]) as [Binary]
  const temporary = join(dir, `${LEFTOVER}${process.pid}`)
  mkdirSync(temporary, { recursive: true })
  try {
    const flags = ['-trimpath', WITHOUT_DWARF, '-ldflags', linkerFlags(module)]
    await runGo(
      [
        'build',
        '-v',
        '-p',
        String(availableParallelism()),
        ...flags,
        '-o',
        `${temporary}/`,
        ...names.map((name) => binaries[name].package),
      ],
      {
        cwd: join(modulesDir, module),
        env: goEnvironment(env, { CGO_ENABLED: needsC(module) ? '1' : '0', GOTMPDIR: temporary }),
        onLine: (line) => share.line(line),
        signal,
      },
    )
    for (const name of names) renameSync(join(temporary, outputOf(name)), join(dir, name))
  } catch (cause) {
    signal?.throwIfAborted()
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

/** Returns the seconds of a first build of these programs on two cores. */
const secondsOf = (names: readonly BinaryName[]): number => names.reduce((sum, name) => sum + binaries[name].seconds, 0)

/** Returns the number of packages that `go build -v` prints for these programs, without the standard library. */
const packagesOf = (names: readonly BinaryName[]): number =>
  names.reduce((sum, name) => sum + binaries[name].packages, 0)

/** The linker's share of the build time. It runs after the last package. */
const LINKING = 0.12

/**
 * Share of packages, and share of the build time at that point. At the beginning, Go fetches modules and compiles the
 * standard library. Measured on two cores with the programs of the demo.
 */
const PACE: [byPackages: number, byTime: number][] = [
  [0, 0],
  [0.02, 0.1],
  [0.08, 0.17],
  [0.14, 0.25],
  [0.28, 0.4],
  [0.43, 0.56],
  [0.57, 0.63],
  [0.74, 0.79],
  [0.88, 0.94],
  [1, 1],
]

/** Returns the elapsed share of the build time, 0 to 1. */
export function timeShare(byPackages: number): number {
  const next = Math.max(
    1,
    PACE.findIndex(([packages]) => packages >= byPackages),
  )
  const [[fromPackages, fromTime] = [0, 0], [toPackages, toTime] = [1, 1]] = PACE.slice(next - 1, next + 1)
  return fromTime + ((byPackages - fromPackages) / (toPackages - fromPackages)) * (toTime - fromTime)
}

/** Measures the progress of a build from the packages that the compiler has printed. */
export class BuildShares {
  readonly #total: number
  readonly #reached: (share: number) => void
  /** Seconds of finished work by module, in measured build times. */
  readonly #done = new Map<string, number>()

  constructor(names: readonly BinaryName[], reached: (share: number) => void) {
    this.#total = secondsOf(names)
    this.#reached = reached
  }

  /** Receives the lines of `go build -v` of these programs, which belong to one module. */
  of(names: readonly BinaryName[]): { line(text: string): void; done(): void } {
    const [seconds, packages, key] = [secondsOf(names), packagesOf(names), names.join()]
    let compiled = 0
    const set = (share: number): void => {
      this.#done.set(key, share * seconds)
      const sum = [...this.#done.values()].reduce((total, one) => total + one, 0)
      this.#reached(timeShare(Math.min(1, sum / this.#total)))
    }
    return {
      line(text) {
        if (!isPackage(text)) return
        compiled += 1
        set(Math.min(1, compiled / packages) * (1 - LINKING))
      },
      done: () => set(1),
    }
  }
}

/** Packages of the standard library have no host as the first part of their path. */
const isPackage = (line: string): boolean => isPackagePath(line) && /^[\w-]+\./.test(line)

/** The versions of an installed program that replace a build. */
interface Accepted {
  least: string
  below: string
  /** Prints the version. Default `--version`. */
  args?: string[]
}

/** The minor version of packages/lab/go: a server may not be newer than kube-apiserver. */
const KUBERNETES: Accepted = { least: '1.36', below: '1.37' }

const accepted: Partial<Record<BinaryName, Accepted>> = {
  etcd: { least: '3.6', below: '4' },
  'kube-apiserver': KUBERNETES,
  'kube-controller-manager': KUBERNETES,
  'kube-scheduler': KUBERNETES,
  kubelet: KUBERNETES,
  'kube-proxy': KUBERNETES,
  kubectl: { least: '1.35', below: '1.38', args: ['version', '--client'] },
  'nats-server': { least: '2.14.5', below: '3' },
  coredns: { least: '1.12', below: '2', args: ['-version'] },
  runc: { least: '1.3', below: '2' },
  kwok: { least: '0.7', below: '1' },
}

const ANSWERS_WITHIN_MS = 20_000

type Found = Map<BinaryName, string>

/** Finds programs in KUBEBUILDER_ASSETS, the folder of envtest. */
async function given(names: readonly BinaryName[], env: Environment, progress: Progress): Promise<Found> {
  const folder = env['KUBEBUILDER_ASSETS']
  return folder ? foundIn([folder], 'KUBEBUILDER_ASSETS', names, env, progress) : new Map()
}

/** Finds programs in PATH. */
async function onPath(names: readonly BinaryName[], env: Environment, progress: Progress): Promise<Found> {
  const folders = (env['PATH'] ?? '').split(delimiter).filter(isAbsolute)
  return foundIn(folders, 'PATH', names, env, progress)
}

/** Uses the first program with each name, or rejects it. Prints one line with all programs that are used. */
async function foundIn(
  folders: readonly string[],
  source: string,
  names: readonly BinaryName[],
  env: Environment,
  progress: Progress,
): Promise<Found> {
  const found: Found = new Map()
  if (isOff(env)) return found
  const taken: string[] = []
  for (const name of names) {
    const wanted = accepted[name]
    const path = wanted && folders.map((folder) => join(folder, name)).find(isExecutable)
    if (wanted === undefined || path === undefined) continue
    const version = await versionOf(path, wanted)
    if (version !== undefined && isAtLeast(version, wanted.least) && !isAtLeast(version, wanted.below)) {
      found.set(name, path)
      taken.push(`${name} ${version} (${path})`)
    } else progress.line(refusal(name, path, version, wanted))
  }
  if (taken.length > 0) progress.line(`taken from ${source}, and not built: ${taken.join(', ')}`)
  return found
}

function isOff({ FAIRLEAD_PREBUILT: value = 'yes' }: Environment): boolean {
  if (['', 'yes', 'no'].includes(value)) return value === 'no'
  throw new Error(`FAIRLEAD_PREBUILT is ${JSON.stringify(value)}, which is not valid: yes or no`)
}

const refusal = (name: BinaryName, path: string, version: string | undefined, { least, below }: Accepted): string =>
  `${path} is not used: ${version === undefined ? 'its version is unknown' : `its version is ${version}`}, and ${name} ${least} or newer, older than ${below}, is needed`

/** Versions by path, read once: a program does not change while this process runs. */
const versions = new Map<string, Promise<string | undefined>>()

function versionOf(path: string, { args = ['--version'] }: Accepted): Promise<string | undefined> {
  const known = versions.get(path)
  if (known) return known
  const asked = new Promise<string | undefined>((resolve) => {
    execFile(path, args, { timeout: ANSWERS_WITHIN_MS }, (error, stdout) =>
      resolve(error ? undefined : /\d+\.\d+\.\d+/.exec(stdout)?.[0]),
    )
  })
  versions.set(path, asked)
  return asked
}
