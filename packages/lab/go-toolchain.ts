import { spawn } from 'node:child_process'
import { accessSync, constants, readFileSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { createInterface } from 'node:readline'
import { killGroupWithThisProcess } from './reaper.ts'

const COMMAND = 'go'

export type Environment = Record<string, string | undefined>

/** Returns the environment of a build, without the user's settings for other builds. */
export function goEnvironment(env: Environment, extra: Record<string, string>): Environment {
  const { GOOS: _os, GOARCH: _arch, GOEXPERIMENT: _experiment, ...rest } = env
  // GOFLAGS is not empty: Go would then use the flags of `go env -w`.
  return { ...rest, GOFLAGS: '-buildvcs=false', GOWORK: 'off', GO111MODULE: 'on', ...extra }
}

/**
 * Rejects with an error that names the fix, unless an installed Go can build a module whose go.mod has `go <needed>`.
 */
export async function requireGo(needed: string, forWhat: string, env: Environment): Promise<void> {
  const why = `Go ${needed} or newer is needed to build ${forWhat} once`
  const cure =
    'Install it from https://go.dev/dl/ (or: brew install go), see that `go version` works in this shell, and try again. ' +
    'Programs or a cluster that you have need no Go: docs/cli.md#the-local-cluster'
  const answer = await runGo(['env', 'GOVERSION', 'GOTOOLCHAIN'], { cwd: tmpdir(), env: goEnvironment(env, {}) }).catch(
    (cause: unknown) => {
      throw new Error(`${why}, and there is no working \`go\` in PATH. ${cure}.`, { cause })
    },
  )
  const [version = '', toolchain = ''] = answer.trim().split('\n')
  if (isAtLeast(version, needed) || (isAtLeast(version, '1.21') && !toolchain.startsWith('local'))) return
  throw new Error(`${why}, and the \`go\` in PATH is ${version.replace('go', '')}. ${cure}.`)
}

/** Returns the version in the `go` line of a go.mod. */
export function goVersionOf(goMod: string): string {
  const [, version] = /^go (\S+)$/m.exec(readFileSync(goMod, 'utf8')) ?? []
  if (!version) throw new Error(`${goMod} has no go line`)
  return version
}

export function newest(versions: readonly string[]): string {
  return versions.reduce((a, b) => (isAtLeast(a, b) ? a : b))
}

export interface GoRun {
  cwd: string
  env: Environment
  signal?: AbortSignal | undefined
  /** Called with each line of its error output. */
  onLine?: (line: string) => void
}

/**
 * Returns the standard output of `go`; its error output becomes the error. If this process is killed, the compilers are
 * killed too.
 */
export function runGo(args: string[], { cwd, env, signal, onLine }: GoRun): Promise<string> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const child = spawn(COMMAND, args, { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
    const reaper = child.pid === undefined ? undefined : killGroupWithThisProcess(child.pid)
    // A signal to `go` alone would leave its compilers running.
    const cancel = (): void => {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
    }
    signal?.addEventListener('abort', cancel)
    child.once('exit', () => signal?.removeEventListener('abort', cancel))
    const out: Buffer[] = []
    let err = ''
    child.stdout.on('data', (chunk: Buffer) => out.push(chunk))
    child.stderr.on('data', (chunk: Buffer) => {
      err = (err + chunk.toString('utf8')).slice(-16_384)
    })
    if (onLine) createInterface({ input: child.stderr }).on('line', onLine)
    child.once('error', reject)
    child.once('close', (code) => {
      reaper?.release()
      if (code === 0) resolve(Buffer.concat(out).toString('utf8'))
      else if (signal?.aborted) reject(signal.reason)
      else reject(new Error(`go ${args[0]} failed in ${cwd}:\n${withoutNoise(err)}`))
    })
  })
}

const NO_NETWORK =
  /dial tcp|no such host|connection refused|i\/o timeout|network is unreachable|proxyconnect|TLS handshake|GOPROXY=off|temporary failure in name resolution/i

/** True if Go could not fetch modules; false for an error of the compiler. */
export function isNetworkFailure(error: unknown): boolean {
  return error instanceof Error && NO_NETWORK.test(error.message)
}

/** Whether the text is a package in the output of `go build -v`. */
export const isPackagePath = (line: string): boolean => /^[\w.-]+(\/[\w.~+-]+)*$/.test(line)

function withoutNoise(stderr: string): string {
  const lines = stderr.trim().split('\n')
  return lines
    .filter((line) => !line.startsWith('go: downloading ') && !isPackagePath(line))
    .slice(-20)
    .join('\n')
}

/** Compares versions as programs print them: `1.36.3`, `go1.26`, `v2.15.3`. Missing parts are 0. */
export function isAtLeast(version: string, needed: string): boolean {
  const [major = 0, minor = 0, patch = 0] = numbers(version)
  const [needMajor = 0, needMinor = 0, needPatch = 0] = numbers(needed)
  if (major !== needMajor) return major > needMajor
  return minor === needMinor ? patch >= needPatch : minor > needMinor
}

function numbers(version: string): number[] {
  return (version.match(/\d+/g) ?? []).map(Number)
}

/** Whether the file exists and this process may execute it. */
export function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch {
    return false
  }
}
