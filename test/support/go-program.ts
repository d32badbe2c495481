import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cacheDir } from '../../packages/lab/build.ts'
import { goEnvironment, goVersionOf, requireGo, runGo } from '../../packages/lab/go-toolchain.ts'
import { madeOnce } from './made-once.ts'

const GO = fileURLToPath(new URL('./go', import.meta.url))

/**
 * Path of a program of test/support/go, or of a package that the module there pins, built once and kept in the user's
 * cache beside the servers. `folder`: where the module is, instead.
 */
export async function goProgram(
  name: string,
  packageName = '.',
  flags: readonly string[] = [],
  folder = GO,
): Promise<string> {
  const source = join(folder, name)
  const hash = createHash('sha256').update([process.platform, process.arch, ...flags].join(' '))
  for (const file of readdirSync(source).sort()) hash.update(`\0${file}\0`).update(readFileSync(join(source, file)))
  const dir = join(cacheDir(), 'bin', `test-${name}-${hash.digest('hex').slice(0, 12)}`)
  const program = join(dir, name)
  return madeOnce(dir, program, async () => {
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
  goProgram('versitygw', 'github.com/versity/versitygw/cmd/versitygw', SMALL)
export const fakeGcsServer = (): Promise<string> =>
  goProgram('fake-gcs-server', 'github.com/fsouza/fake-gcs-server', SMALL)
export const promtool = (): Promise<string> =>
  goProgram('promtool', 'github.com/prometheus/prometheus/cmd/promtool', ['-tags', 'remove_all_sd'])
export const cloudEventsProgram = (): Promise<string> => goProgram('cloudevents')
