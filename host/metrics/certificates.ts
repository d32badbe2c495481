import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { Gauge, type Registry } from 'prom-client'

export interface CertificateObserver {
  /** The end of validity of the certificate that NATS showed at the last connection. */
  serverCertificate(end: Date): void
}

/**
 * Reports when the certificates end that this process and NATS use for mutual TLS. A connection without TLS has no such
 * gauge.
 */
export function certificateGauge(registry: Registry, clientCertificate: string | undefined): CertificateObserver {
  let server: Date | undefined
  const gauge: Gauge = new Gauge({
    name: 'fairlead_nats_certificate_expiration_timestamp_seconds',
    help: 'When a certificate of the connection to NATS ends: of the server as it was last seen, of this client as its file is',
    labelNames: ['certificate'],
    registers: [registry],
    async collect() {
      gauge.reset()
      const ends = { server, client: await endOf(clientCertificate) }
      for (const [certificate, end] of Object.entries(ends))
        if (end !== undefined) gauge.set({ certificate }, end.getTime() / 1000)
    },
  })
  return { serverCertificate: (end) => (server = end) }
}

/** Returns undefined for a file that cannot be read: the connection that needs the file reports the error. */
async function endOf(file: string | undefined): Promise<Date | undefined> {
  if (file === undefined) return undefined
  try {
    return new X509Certificate(await readFile(file)).validToDate
  } catch {
    return undefined
  }
}
