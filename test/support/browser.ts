import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, createWriteStream, existsSync } from 'node:fs'
import { chmod, mkdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { createBrotliDecompress } from 'node:zlib'
import { cacheDir } from '../../packages/lab/build.ts'
import { withLock } from '../../packages/lab/lock.ts'
import { shortTempDir } from './servers.ts'

/** Chromium, and the few libraries of Amazon Linux beyond libc that it is linked to. */
const PACKAGE = fileURLToPath(new URL('..', import.meta.resolve('@sparticuz/chromium')))
/** The browser shows only the pages of tests, so it needs no sandbox, which root cannot use. */
const FLAGS = ['--headless=shell', '--no-sandbox', '--no-zygote', '--disable-gpu', '--disable-webgl']

/** A headless Chromium that shows one page. */
export interface Browser extends AsyncDisposable {
  open(url: string): Promise<void>
  /** The value of an expression in the page. */
  evaluate<T>(expression: string): Promise<T>
  /** The size of the page, in pixels, and the colours that the user prefers. */
  look(as: { width: number; height?: number; dark?: boolean }): Promise<void>
  /** One key, such as `Tab`, `Enter` or `j`. */
  press(key: string): Promise<void>
  /** PNG. */
  screenshot(): Promise<Buffer>
  /** Uncaught errors, and errors in the console of the page, since the last call. */
  complaints(): string[]
}

/** Why this machine cannot run it: it is built for one platform only. */
export function whyNoBrowser(): string | undefined {
  const platform = `${process.platform} ${process.arch}`
  return platform === 'linux x64' ? undefined : `its Chromium is for linux x64, and this is ${platform}`
}

/**
 * `await using browser = await startBrowser()`: ready in about a second; unpacked into the user's cache on first use.
 * Controlled through the DevTools protocol.
 */
export async function startBrowser(): Promise<Browser> {
  const { program, libraries } = await unpacked()
  const profile = await shortTempDir()
  const chromium = spawn(program, [...FLAGS, '--remote-debugging-port=0', `--user-data-dir=${profile}`], {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, LD_LIBRARY_PATH: libraries },
  })
  const stop = async () => {
    if (chromium.exitCode === null && chromium.kill('SIGKILL')) await once(chromium, 'exit')
    await rm(profile, { recursive: true, force: true, maxRetries: 5 })
  }
  try {
    const port = await inTime('its debugging port', debuggingPort(chromium))
    const complaints: string[] = []
    const call = await connect(await newPage(port), (text) => complaints.push(text))
    for (const domain of ['Runtime', 'Log', 'Page']) await call(`${domain}.enable`, {})
    return {
      async open(url) {
        const { errorText } = await call<{ errorText?: string }>('Page.navigate', { url })
        if (errorText !== undefined) throw new Error(`Chromium cannot open ${url}: ${errorText}`)
      },
      async evaluate<T>(expression: string) {
        const { result, exceptionDetails: thrown } = await call<Evaluated<T>>('Runtime.evaluate', {
          expression,
          returnByValue: true,
          awaitPromise: true,
        })
        if (thrown) throw new Error(thrown.exception?.description ?? thrown.text)
        return result.value
      },
      async look({ width, height = 900, dark = false }) {
        await call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false })
        const features = [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }]
        await call('Emulation.setEmulatedMedia', { features })
      },
      async press(key) {
        const code = { Tab: 9, Enter: 13, Escape: 27, ' ': 32 }[key]
        const text = key === 'Enter' ? '\r' : key.length === 1 ? key : undefined
        const event = { key, windowsVirtualKeyCode: code ?? key.toUpperCase().charCodeAt(0), ...(text && { text }) }
        await call('Input.dispatchKeyEvent', { ...event, type: 'keyDown' })
        await call('Input.dispatchKeyEvent', { ...event, type: 'keyUp' })
      },
      async screenshot() {
        const { data } = await call<{ data: string }>('Page.captureScreenshot', { format: 'png' })
        return Buffer.from(data, 'base64')
      },
      complaints: () => complaints.splice(0),
      [Symbol.asyncDispose]: stop,
    }
  } catch (error) {
    await stop()
    throw error
  }
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

/** Rejects with its own words when it ends before it listens. */
function debuggingPort({ stderr }: ChildProcess): Promise<string> {
  const found = Promise.withResolvers<string>()
  let said = ''
  stderr!.on('data', (chunk) => {
    said += String(chunk)
    const [, port] = /^DevTools listening on ws:\/\/[^:]+:(\d+)/m.exec(said) ?? []
    if (port !== undefined) found.resolve(port)
  })
  stderr!.once('close', () => found.reject(new Error(`Chromium ended before it could be used: ${said}`)))
  return found.promise
}

async function newPage(port: string): Promise<string> {
  const made = await fetch(`http://127.0.0.1:${port}/json/new`, { method: 'PUT' })
  return ((await made.json()) as { webSocketDebuggerUrl: string }).webSocketDebuggerUrl
}

type Call = <T>(method: string, params: object) => Promise<T>

async function connect(url: string, complain: (text: string) => void): Promise<Call> {
  const socket = new WebSocket(url)
  await once(socket, 'open')
  socket.addEventListener('message', ({ data }) => {
    const text = complaintIn(JSON.parse(String(data)) as Message)
    if (text !== undefined) complain(text)
  })
  let calls = 0
  return async <T>(method: string, params: object): Promise<T> => {
    const id = ++calls
    const answered = Promise.withResolvers<T>()
    const listen = ({ data }: MessageEvent): void => {
      const answer = JSON.parse(String(data)) as { id?: number; result: T; error?: { message: string } }
      if (answer.id !== id) return
      socket.removeEventListener('message', listen)
      if (answer.error === undefined) answered.resolve(answer.result)
      else answered.reject(new Error(`${method}: ${answer.error.message}`))
    }
    socket.addEventListener('message', listen)
    socket.send(JSON.stringify({ id, method, params }))
    return inTime(`an answer to ${method} ${JSON.stringify(params)}`, answered.promise)
  }
}

interface Thrown {
  text: string
  exception?: { description?: string }
}

interface Evaluated<T> {
  result: { value: T }
  exceptionDetails?: Thrown
}

interface Message {
  method?: string
  params?: {
    exceptionDetails?: Thrown
    entry?: { level: string; text: string; url?: string }
  }
}

function complaintIn({ method, params: { exceptionDetails: thrown, entry } = {} }: Message): string | undefined {
  if (method === 'Runtime.exceptionThrown') return thrown?.exception?.description ?? thrown?.text
  return method === 'Log.entryAdded' && entry?.level === 'error' ? `${entry.text} ${entry.url ?? ''}` : undefined
}

/** A browser that hangs fails the test by what it was asked for, not by the test's own time limit. */
async function inTime<T>(what: string, work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error(`Chromium has not given ${what} within 20 s`)), 20_000)
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer))
}
