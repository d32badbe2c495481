import { chmod, cp, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { cacheDir } from '#lab'
import { goEnvironment, goVersionOf, requireGo, runGo } from '../../../packages/lab/go-toolchain.ts'
import { goModule } from '../../support/go-program.ts'
import { madeOnce } from '../../support/made-once.ts'

const [MODULE, VERSION] = ['github.com/kedacore/keda/v2', 'v2.21.0']
/** The one scaler that is built: the other 70 would bring 1,400 packages of clouds and databases, and an hour. */
const SCALER = 'nats-jetstream'

export interface KedaPrograms {
  operator: string
  adapter: string
  /** Manifests of the same version. */
  crds: string
}

/** KEDA's operator and metrics adapter, built once, some minutes. */
export async function kedaPrograms(): Promise<KedaPrograms> {
  const dir = join(cacheDir(), 'bin', `test-keda-${VERSION}-${SCALER}-${process.arch}`)
  await madeOnce(dir, join(dir, 'adapter'), async () => {
    const module = await goModule(MODULE, VERSION)
    await requireGo(goVersionOf(join(module, 'go.mod')), 'KEDA', process.env)
    const env = goEnvironment(process.env, { CGO_ENABLED: '0' })
    const source = join(dir, 'source')
    await rm(source, { recursive: true, force: true })
    await cp(module, source, { recursive: true })
    await writable(source)
    await keepOneScaler(source)
    await mkdir(join(dir, 'new'), { recursive: true })
    const args = ['build', '-p', '1', '-trimpath', '-ldflags', '-s -w', '-o', `${join(dir, 'new')}/`]
    await runGo([...args, './cmd/operator', './cmd/adapter'], { cwd: source, env })
    for (const name of ['operator', 'adapter']) await rename(join(dir, 'new', name), join(dir, name))
  })
  return { operator: join(dir, 'operator'), adapter: join(dir, 'adapter'), crds: join(dir, 'source/config/crd/bases') }
}

/** Go's copy of a module is read-only. */
async function writable(folder: string): Promise<void> {
  await chmod(folder, 0o755)
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true }))
    await chmod(join(entry.parentPath, entry.name), entry.isDirectory() ? 0o755 : 0o644)
}

async function keepOneScaler(source: string): Promise<void> {
  const scalers = join(source, 'pkg/scalers')
  const kept = `${SCALER.replace('-', '_')}_scaler.go`
  for (const name of await readdir(scalers))
    if (/_scaler(?:_.*)?\.go$/.test(name) && name !== kept) await rm(join(scalers, name))
  const builder = join(source, 'pkg/scaling/scalers_builder.go')
  const text = await readFile(builder, 'utf8')
  const others = new RegExp(`\\tcase "(?!${SCALER}")[^"]+":\\n\\t\\treturn scalers\\.[^\\n]+\\n`, 'g')
  await writeFile(builder, text.replace(others, ''))
}
