import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, createWriteStream, existsSync } from 'node:fs'
import { chmod, mkdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { createBrotliDecompress } from 'node:zlib'
import { chromium, type Page } from 'playwright-core'
import { cacheDir } from '../../packages/lab/build.ts'
import { withLock } from '../../packages/lab/lock.ts'

/** Chromium, and the few libraries of Amazon Linux beyond libc that it is linked to. */
const PACKAGE = fileURLToPath(new URL('..', import.meta.resolve('@sparticuz/chromium')))
/** Beside those of Playwright, which uses no sandbox: the browser shows only the pages of tests. */
const FLAGS = ['--no-zygote', '--disable-gpu', '--disable-webgl']
const PATIENCE_MS = 120_000

/** A headless Chromium that shows one page. */
export interface Browser extends AsyncDisposable {
  page: Page
  /** Uncaught errors, and errors in the console of the page, since the last call. */
  complaints(): string[]
}

/** Why this machine cannot run it: it is built for one platform only. */
export function whyNoBrowser(): string | undefined {
  const platform = `${process.platform} ${process.arch}`
  return platform === 'linux x64' ? undefined : `its Chromium is for linux x64, and this is ${platform}`
}

/** `await using browser = await startBrowser()`: unpacked into the user's cache on first use. */
export async function startBrowser(): Promise<Browser> {
  const { program, libraries } = await unpacked()
  const env = { ...process.env, LD_LIBRARY_PATH: libraries }
  const browser = await chromium.launch({ executablePath: program, args: FLAGS, env, timeout: PATIENCE_MS })
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } })
  page.setDefaultTimeout(PATIENCE_MS)
  const complaints: string[] = []
  page.on('pageerror', (error) => complaints.push(error.stack ?? error.message))
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(`${message.text()} ${message.location().url}`)
  })
  return { page, complaints: () => complaints.splice(0), [Symbol.asyncDispose]: () => browser.close() }
}

async function unpacked(): Promise<{ program: string; libraries: string }> {
  const { version } = JSON.parse(await readFile(join(PACKAGE, 'package.json'), 'utf8')) as { version: string }
  const dir = join(cacheDir(), 'chromium', version)
  await mkdir(join(cacheDir(), 'chromium'), { recursive: true })
  const unpackOnce = async () => {
    if (!existsSync(dir)) await unpack(dir)
  }
  await withLock(`${dir}.lock`, () => {}, unpackOnce)
  return { program: join(dir, 'chromium'), libraries: join(dir, 'lib') }
}

async function unpack(dir: string): Promise<void> {
  const [part, libraries] = [`${dir}.part`, `${dir}.part/libraries.tar`]
  await rm(part, { recursive: true, force: true })
  await mkdir(part)
  await decompress('chromium.br', join(part, 'chromium'))
  await chmod(join(part, 'chromium'), 0o755)
  await decompress('al2023.tar.br', libraries)
  await once(spawn('tar', ['-xf', libraries, '-C', part]), 'exit')
  await rm(libraries)
  await rename(part, dir)
}

const decompress = (name: string, to: string): Promise<void> =>
  pipeline(createReadStream(join(PACKAGE, 'bin', name)), createBrotliDecompress(), createWriteStream(to))
