import { writeFile } from 'node:fs/promises'
import { backup, openStore, type Report, readTls, reportText, restore, type StoreKind, verify } from '#etcd-agent'
import { untilStopped } from '#host/exit'
import type { CommandContext } from '../options.ts'

export interface StoreOptions {
  store: StoreKind
  path: string
  storeSecret: string
  endpoint?: string
  pathStyle: boolean
  timeout: number
  report?: string
}

export interface BackupOptions extends StoreOptions {
  endpoints: string[]
  etcdTls?: string
  owner: string
  periodic: boolean
  keep?: number
}

export interface RestoreOptions extends StoreOptions {
  dataDir: string
  name: string
  peerUrl: string
  token: string
  sha256?: string
  bumpRevision: number
  etcdutl: string
}

export const runBackup = (options: BackupOptions, context: CommandContext): Promise<void> =>
  reported(options, context, async (signal) => {
    const { endpoints, etcdTls, owner, periodic, keep } = options
    const { store, key } = await openStore(addressOf(options))
    const tls = etcdTls === undefined ? undefined : await readTls(etcdTls)
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
    const { dataDir, name, peerUrl, token, sha256, bumpRevision, etcdutl } = options
    const { store, key } = await openStore(addressOf(options))
    return restore({ store, key, sha256, dataDir, member: { name, peerUrl, token }, bumpRevision, etcdutl, signal })
  })

const addressOf = ({ store: kind, path, storeSecret: secret, endpoint, pathStyle }: StoreOptions) => ({
  kind,
  path,
  secret,
  endpoint,
  pathStyle,
})

/** The result, or why there is none, on standard output and in the file that Kubernetes reads. */
async function reported(
  { timeout, report }: StoreOptions,
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
