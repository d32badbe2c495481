import { createHash, type Hash } from 'node:crypto'
import { readdirSync, readFileSync, renameSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cacheDir, WITHOUT_DWARF } from '../../packages/lab/build.ts'
import { goEnvironment, goVersionOf, requireGo, runGo } from '../../packages/lab/go-toolchain.ts'
import { madeOnce } from './made-once.ts'

const GO = fileURLToPath(new URL('./go', import.meta.url))

/** Path of a program of test/support/go, or of `folder`, built once and kept in the user's cache beside the servers. */
export function goProgram(name: string, folder = GO, flags: readonly string[] = []): Promise<string> {
  const source = join(folder, name)
  const hash = createHash('sha256')
  for (const file of readdirSync(source).sort()) hash.update(`\0${file}\0`).update(readFileSync(join(source, file)))
  return built(name, hash, flags, () => Promise.resolve({ source, packageName: '.' }))
}

/** Path of a program of a published module, which pins what it needs, as the one above. */
function publishedProgram(module: string, version: string, folder: string, flags: readonly string[]): Promise<string> {
  const packageName = `./${folder}`
  const name = (folder || module).split('/').at(-1) ?? ''
  const hash = createHash('sha256').update(`${module}@${version} ${packageName}`)
  return built(name, hash, flags, async () => ({ source: await goModule(module, version), packageName }))
}

/** Folder of a published module, read-only. */
export async function goModule(module: string, version: string): Promise<string> {
  const env = goEnvironment(process.env, {})
  const answer = await runGo(['mod', 'download', '-json', `${module}@${version}`], { cwd: tmpdir(), env })
  return (JSON.parse(answer) as { Dir: string }).Dir
}

async function built(
  name: string,
  hash: Hash,
  flags: readonly string[],
  find: () => Promise<{ source: string; packageName: string }>,
): Promise<string> {
  hash.update([process.platform, process.arch, ...flags].join(' '))
  const dir = join(cacheDir(), 'bin', `test-${name}-${hash.digest('hex').slice(0, 12)}`)
  const program = join(dir, name)
  return madeOnce(dir, program, async () => {
    const { source, packageName } = await find()
    await requireGo(goVersionOf(join(source, 'go.mod')), name, process.env)
    const env = goEnvironment(process.env, { CGO_ENABLED: '0' })
    await runGo(['build', '-trimpath', ...flags, '-o', `${program}.new`, packageName], { cwd: source, env })
    renameSync(`${program}.new`, program)
  })
}

/** Without symbols: a third of the time to link. */
const SMALL = ['-ldflags=-s -w']

/** An S3 server. */
export const versitygw = (): Promise<string> =>
  publishedProgram('github.com/versity/versitygw', 'v1.8.0', 'cmd/versitygw', SMALL)
export const fakeGcsServer = (): Promise<string> =>
  publishedProgram('github.com/fsouza/fake-gcs-server', 'v1.56.1', '', SMALL)
export const promtool = (): Promise<string> =>
  publishedProgram('github.com/prometheus/prometheus', 'v0.315.0', 'cmd/promtool', ['-tags', 'remove_all_sd'])
export const cloudEventsProgram = (): Promise<string> => goProgram('cloudevents')
/** An operator on controller-runtime. With the flags of kubectl, whose packages are compiled already. */
export const memcachedOperator = (): Promise<string> => goProgram('memcached-operator', GO, [WITHOUT_DWARF, ...SMALL])
