import { X509Certificate } from 'node:crypto'
import { hostname } from 'node:os'
import { checkServerIdentity, type PeerCertificate } from 'node:tls'
import type { Logger } from 'pino'
import { shownKey } from '#events'
import { connectJetStream, type JetStream } from '#nats'
import type { QueueOptions } from '#queue'
import type { Config } from './config.ts'
import { UsageError } from './exit.ts'
import type { CertificateObserver } from './metrics.ts'

export function openJetStream(
  config: Config,
  role: string,
  { certificates, inboxPrefix = `_INBOX.${role}` }: { certificates?: CertificateObserver; inboxPrefix?: string } = {},
): Promise<JetStream> {
  return connectJetStream({
    servers: config.NATS_URL,
    name: `fairlead ${role} ${hostname()} ${process.pid}`,
    inboxPrefix,
    apiPrefix: config.NATS_API_PREFIX,
    ...tlsOf(config, certificates),
  })
}

/** Reads the files for each connection, so a renewed certificate needs no restart. */
function tlsOf(
  { NATS_CA: caFile, NATS_CERT: certFile, NATS_KEY: keyFile }: Config,
  certificates?: CertificateObserver,
) {
  if ((certFile === undefined) !== (keyFile === undefined))
    throw new UsageError('NATS_CERT and NATS_KEY belong together: the certificate of this client, and its key')
  const own = certFile !== undefined && keyFile !== undefined ? { certFile, keyFile } : undefined
  if (caFile === undefined && own === undefined) return {}
  const identity = (host: string, certificate: PeerCertificate): Error | undefined => {
    certificates?.serverCertificate(new X509Certificate(certificate.raw).validToDate)
    return checkServerIdentity(host, certificate)
  }
  const tls = { caFile, ...own, checkServerIdentity: identity }
  return { options: { tls } }
}

export const prefixOf = ({ FAIRLEAD_PREFIX: prefix }: Pick<Config, 'FAIRLEAD_PREFIX'>) =>
  prefix === undefined ? {} : { prefix }

/** Returns the names that these streams have in the installation. */
export const streamsOf = ({ FAIRLEAD_PREFIX: prefix }: Pick<Config, 'FAIRLEAD_PREFIX'>, names: readonly string[]) =>
  names.map((name) => (prefix === undefined ? name : `${prefix}_${name}`))

export function queueOptions(config: Config, log: Logger): QueueOptions {
  const leaseMs = config.FAIRLEAD_LEASE_SECONDS * 1000
  return {
    ...prefixOf(config),
    leaseMs,
    ackWaitMs: leaseMs,
    // Logs a key as the object that it stands for.
    log: log.child({}, { serializers: { key: shownKey } }),
    instance: `${hostname()}-${process.pid}`,
  }
}

const LOOK_EVERY_MS = 500
/** A look judges after this time. It is below a multiple of LOOK_EVERY_MS which, with one more look, is two seconds. */
const SILENT_MS = 1400

type Log = Record<'info' | 'warn', (fields: object, message: string) => void>

/**
 * Logs within two seconds that NATS is unreachable, and logs its return, each once. A server that ends closes the
 * connection; one that hangs answers no ping and sends no other data.
 */
export function reportConnection(js: JetStream, log: Log): void {
  const { nc } = js
  let goneSince: number | undefined
  const gone = (because: string) => {
    if (goneSince !== undefined || nc.isClosed()) return
    goneSince = performance.now()
    log.warn({ server: nc.getServer(), because }, 'NATS is gone: work goes on when it is back')
  }
  const back = () => {
    if (goneSince === undefined) return
    const afterSeconds = Math.round((performance.now() - goneSince) / 100) / 10
    goneSince = undefined
    log.info({ server: nc.getServer(), afterSeconds }, 'NATS is back')
  }

  let isConnected = true
  /** Since when an answer is due, or the time of the last byte; undefined if no answer is due. */
  let silentSince: number | undefined
  let bytes = 0
  const settled = (isAnswered: boolean) => {
    silentSince = undefined
    if (isAnswered) back()
  }
  // Data that arrived while this process was busy is read before the silence is judged.
  const judge = () => {
    if (silentSince !== undefined && performance.now() - silentSince > SILENT_MS) gone('it does not answer')
  }
  const look = () => {
    if (nc.isClosed()) return clearInterval(timer)
    if (!isConnected) return
    const { inBytes } = nc.stats()
    if (silentSince === undefined) {
      silentSince = performance.now()
      nc.flush().then(
        () => settled(true),
        () => settled(false),
      )
    } else if (inBytes === bytes) setImmediate(judge)
    else silentSince = performance.now()
    bytes = inBytes
  }
  const timer = setInterval(look, LOOK_EVERY_MS).unref()
  js.onDisconnect(() => {
    isConnected = false
    gone('the connection has dropped')
  })
  js.onReconnect(() => {
    isConnected = true
    back()
  })
}
