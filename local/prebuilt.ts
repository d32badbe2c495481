import { execFile } from 'node:child_process'
import { delimiter, isAbsolute, join } from 'node:path'
import type { BinaryName } from './binaries.ts'
import { isExecutable } from './executable.ts'
import type { Environment } from './go-toolchain.ts'
import type { Progress } from './progress.ts'
import { isAtLeast } from './versions.ts'

/** The versions of an installed program that replace a build. */
interface Accepted {
  least: string
  below: string
  /** Prints the version. Default `--version`. */
  args?: string[]
}

/** The minor version of local/go: a server may not be newer than kube-apiserver. */
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
export async function given(names: readonly BinaryName[], env: Environment, progress: Progress): Promise<Found> {
  const folder = env['KUBEBUILDER_ASSETS']
  return folder ? foundIn([folder], 'KUBEBUILDER_ASSETS', names, env, progress) : new Map()
}

/** Finds programs in PATH. */
export async function onPath(names: readonly BinaryName[], env: Environment, progress: Progress): Promise<Found> {
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
