import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { cp, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import etcd from '../../functions/etcd/package.json' with { type: 'json' }
import { cacheDir } from '../../packages/lab/build.ts'
import { ASSETS, buildCreatePackage, buildPackage, ROOMS, ROOT } from '../../packages/release/build.ts'
import { pack } from '../../packages/release/publish.ts'
import { madeOnce } from './made-once.ts'

const run = promisify(execFile)

/** The first caller waits for the compiler and for npm, and later callers wait with it. */
export const PACKED_WITHIN_MS = 300_000

export interface PackedPackage {
  /** What `npm publish` would send. */
  tarball: string
  /** What is in it, unpacked. */
  folder: string
  /** A project in which npm has installed it. */
  installed: string
  /** The folder of `create-fairlead`. */
  create: string
}

/** The package as it would be published, made once for each state of the sources. */
export async function packedPackage(): Promise<PackedPackage> {
  const packages = join(cacheDir(), 'package')
  const dir = join(packages, await digest())
  const [folder, installed] = [join(dir, 'package'), join(dir, 'installed')]
  const tarball = await madeOnce(dir, join(dir, 'fairlead.tgz'), async () => {
    await removeOthers(packages, dir)
    const manifest = await buildPackage(folder)
    await buildCreatePackage(folder, manifest, join(dir, 'create-fairlead'))
    const packed = await pack(folder, dir)
    await npmInstall(installed, [packed])
    await rename(packed, join(dir, 'fairlead.tgz'))
  })
  return { tarball, folder, installed, create: join(dir, 'create-fairlead') }
}

/** A project with the package and the clients of object stores: what the image of the agent has. */
export async function agentProject(): Promise<string> {
  const { tarball } = await packedPackage()
  const dir = join(dirname(tarball), 'agent')
  const clients = Object.entries(etcd.devDependencies).map(([name, version]) => `${name}@${version}`)
  await madeOnce(dir, join(dir, 'package-lock.json'), () => npmInstall(dir, [tarball, ...clients]))
  return dir
}

/** As an author does, in a new folder. */
export async function npmInstall(cwd: string, packages: readonly string[]): Promise<void> {
  await mkdir(cwd, { recursive: true })
  await writeFile(join(cwd, 'package.json'), '{ "name": "my-operator", "type": "module" }')
  await run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts', ...packages], { cwd })
}

/** Returns a hash of the inputs of the package. */
async function digest(): Promise<string> {
  const hash = createHash('sha256')
  for (const path of ['package.json', 'packages/release', ...ASSETS, ...ROOMS]) {
    const isFolder = (await stat(join(ROOT, path))).isDirectory()
    const files = isFolder ? (await readdir(join(ROOT, path), { recursive: true })).sort() : ['']
    for (const name of files) {
      const file = join(ROOT, path, name)
      if ((await stat(file)).isFile()) hash.update(`${path}/${name}\n`).update(await readFile(file))
    }
  }
  return hash.digest('hex').slice(0, 12)
}

/** Packages of other states of the sources, but for those that another run may use. */
async function removeOthers(packages: string, mine: string): Promise<void> {
  const [names, now] = [await readdir(packages), Date.now()]
  for (const dir of names.map((name) => join(packages, name)).filter((one) => one !== mine))
    if (existsSync(dir) && now - (await stat(dir)).mtimeMs > 3_600_000) await rm(dir, { recursive: true, force: true })
}

/** Links what npm has installed into a folder of an author, since a copy takes seconds. Nothing may be changed in it. */
export async function installPackage(folder: string): Promise<void> {
  const { installed } = await packedPackage()
  const [from, to] = [installed, folder].map((one) => join(one, 'node_modules')) as [string, string]
  // The folder may be on another file system.
  await run('cp', ['-RPl', from, to]).catch(() => cp(from, to, { recursive: true, verbatimSymlinks: true }))
}
