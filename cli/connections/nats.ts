import { hostname } from 'node:os'
import { connectJetStream, type JetStream } from '#jetstream'
import type { Config } from '../config.ts'
import { UsageError } from '../exit.ts'

export function openJetStream(config: Config, role: string): Promise<JetStream> {
  return connectJetStream({
    servers: config.NATS_URL,
    name: `fairlead ${role} ${hostname()} ${process.pid}`,
    ...tlsOf(config),
  })
}

/** The files are read anew for each connection: who renews a certificate needs no restart. */
function tlsOf({ NATS_CA: caFile, NATS_CERT: certFile, NATS_KEY: keyFile }: Config) {
  if ((certFile === undefined) !== (keyFile === undefined))
    throw new UsageError('NATS_CERT and NATS_KEY belong together: the certificate of this client, and its key')
  const own = certFile !== undefined && keyFile !== undefined ? { certFile, keyFile } : undefined
  if (caFile === undefined && own === undefined) return {}
  return { options: { tls: { ...(caFile !== undefined && { caFile }), ...own } } }
}
