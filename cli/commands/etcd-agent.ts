import { writeFile } from 'node:fs/promises'
import {
  backup,
  fromMembers,
  fromStore,
  openStore,
  type Report,
  readTls,
  reportText,
  restore,
  type StoreKind,
  verify,
} from '#functions/etcd/agent'
import { pause } from '#primitives'
import { untilStopped } from '#process/exit'
import type { CommandContext } from '../options.ts'

interface RunOptions {
  timeout: number
  report?: string
}

export interface StoreOptions extends RunOptions {
  store: StoreKind
  path: string
  storeSecret?: string
  endpoint?: string
  pathStyle: boolean
}

export interface BackupOptions extends StoreOptions {
  endpoints: string[]
  etcdTls?: string
  owner: string
  periodic: boolean
  keep?: number
}

interface SeedOptions {
  dataDir: string
  name: string
  peerUrl: string
  token: string
  bumpRevision: number
  etcdutl: string
}

export interface RestoreOptions extends StoreOptions, SeedOptions {
  sha256?: string
}

export interface RecoverOptions extends RunOptions, SeedOptions {
  endpoints: string[]
  etcdTls?: string
  revision: number
}

export const runBackup = (options: BackupOptions, context: CommandContext): Promise<void> =>
  reported(options, context, async (signal) => {
    const { endpoints, etcdTls, owner, periodic, keep } = options
    const { store, key } = await openStore(addressOf(options))
    const tls = await tlsIn(etcdTls)
    const often = periodic ? { most: keep } : undefined
    const timeoutMs = options.timeout * 1000
    return backup({ endpoints, tls, store, key, periodic: often, owner, now: new Date(), timeoutMs, signal })
  })

export const runVerify = (options: StoreOptions, context: CommandContext): Promise<void> =>
  reported(options, context, async (signal) => {
    const { store, key } = await openStore(addressOf(options))
    return verify(store, key, signal)
  })

export const runRestore = (options: RestoreOptions, context: CommandContext): Promise<void> =>
  reported(options, context, async (signal) => {
    const { store, key } = await openStore(addressOf(options))
    return restore({ ...seedOf(options), source: fromStore(store, key), sha256: options.sha256, signal })
  })

export const runRecover = (options: RecoverOptions, context: CommandContext): Promise<void> =>
  reported(options, context, async (signal) => {
    const { endpoints, etcdTls, revision, timeout } = options
    const source = fromMembers({ endpoints, tls: await tlsIn(etcdTls), revision, timeoutMs: timeout * 1000 })
    return restore({ ...seedOf(options), source, signal })
  })

const seedOf = ({ dataDir, name, peerUrl, token, bumpRevision, etcdutl }: SeedOptions) => ({
  dataDir,
  member: { name, peerUrl, token },
  bumpRevision,
  etcdutl,
})

const tlsIn = async (folder: string | undefined) => (folder === undefined ? undefined : readTls(folder))

const addressOf = ({ store: kind, path, storeSecret: secret, endpoint, pathStyle }: StoreOptions) => ({
  kind,
  path,
  secret,
  endpoint,
  pathStyle,
})

/** How long the clean-up of a task may take that was stopped: two requests of 5 s to the store. */
const CLEAN_UP_MS = 12_000

/**
 * Returns the result of a task. Ends the process if the task does not notice that it was stopped, such as a client that
 * waits for a silent token service.
 */
async function unlessDeaf<T>(task: Promise<T>, signal: AbortSignal): Promise<T> {
  const ended = new AbortController()
  const { promise: deaf, reject } = Promise.withResolvers<never>()
  const stopped = async (): Promise<void> => {
    await pause(CLEAN_UP_MS, ended.signal)
    if (ended.signal.aborted) return
    setTimeout(() => process.exit(), 1000).unref()
    reject(signal.reason)
  }
  signal.addEventListener('abort', () => void stopped(), { once: true, signal: ended.signal })
  try {
    return await Promise.race([task, deaf])
  } finally {
    ended.abort()
  }
}

/** Writes the result, or the error, to standard output and to the file that Kubernetes reads. */
async function reported(
  { timeout, report }: RunOptions,
  { print }: CommandContext,
  act: (signal: AbortSignal) => Promise<Report>,
): Promise<void> {
  const late = new Error(`not finished within ${timeout} s: give it a longer timeout`)
  const controller = untilStopped()
  const timer = setTimeout(() => controller.abort(late), timeout * 1000)
  const tell = async (result: Report) => {
    if (report !== undefined) await writeFile(report, reportText(result))
  }
  try {
    const result = await unlessDeaf(act(controller.signal), controller.signal)
    await tell(result)
    print(reportText(result))
  } catch (error) {
    const cause: unknown = controller.signal.aborted ? controller.signal.reason : error
    await tell({ error: textOf(cause) })
    throw cause
  } finally {
    clearTimeout(timer)
  }
}

function textOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  return cause.name === 'AbortError' ? `stopped by ${cause.message}` : cause.message
}
