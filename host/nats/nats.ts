import { X509Certificate } from 'node:crypto'
import { hostname } from 'node:os'
import { checkServerIdentity, type PeerCertificate } from 'node:tls'
import type { Config } from '#host/config'
import { UsageError } from '#host/exit'
import type { CertificateObserver } from '#host/metrics'
import { connectJetStream, type JetStream } from '#jetstream'

export function openJetStream(config: Config, role: string, certificates?: CertificateObserver): Promise<JetStream> {
  return connectJetStream({
    servers: config.NATS_URL,
    name: `fairlead ${role} ${hostname()} ${process.pid}`,
    inboxPrefix: `_INBOX.${role}`,
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
  const tls = { ...(caFile !== undefined && { caFile }), ...own, checkServerIdentity: identity }
  return { options: { tls } }
}
