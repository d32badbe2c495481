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
    const result = await act(controller.signal)
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
