import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { Gauge, type Registry } from 'prom-client'

export interface CertificateObserver {
  /** The certificate that NATS showed at the last connection is good until then. */
  serverCertificate(end: Date): void
}

/** When the certificates end by which this process and NATS know each other; nothing is said of a connection without. */
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

/** A file that cannot be read is named by the connection that needs it. */
async function endOf(file: string | undefined): Promise<Date | undefined> {
  if (file === undefined) return undefined
  try {
    return new X509Certificate(await readFile(file)).validToDate
  } catch {
    return undefined
  }
}
