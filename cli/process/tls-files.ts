import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { RequestListener } from 'node:http'
import { createServer, type Server, type ServerOptions } from 'node:https'
import { createSecureContext } from 'node:tls'
import type { RunLog } from '#contracts'
import { UsageError } from './exit.ts'

/** Files in PEM: a certificate with its chain, and its key. */
export interface TlsFiles {
  cert: string
  key: string
}

/** The kubelet renews the files of a Secret within two minutes. */
const READ_AGAIN_MS = 10_000

export interface TlsServer {
  server: Server
  /** The end of the certificate that new connections get. */
  readonly certificateEnd: () => Date
}

/**
 * Returns an HTTPS server that does not listen yet. It reads the files again every 10 s, and new connections get what is
 * in them. Files that are missing, or do not belong together, change nothing, and are logged; at the start they are a
 * UsageError.
 */
export async function createTlsServer(
  files: TlsFiles,
  log: RunLog,
  listener: RequestListener,
  options: ServerOptions = {},
): Promise<TlsServer> {
  let current = await read(files).catch((cause: Error) => {
    throw new UsageError(`the certificate in ${files.cert} and ${files.key} cannot be used: ${cause.message}`, {
      cause,
    })
  })
  const server = createServer({ ...options, ...current }, listener)
  const readAgain = async (): Promise<void> => {
    try {
      const now = await read(files)
      if (now.cert === current.cert && now.key === current.key) return
      server.setSecureContext(now)
      current = now
      log.info({ until: now.end.toISOString() }, 'new connections get another certificate')
    } catch (error) {
      log.warn({ err: error, file: files.cert }, 'the certificate cannot be read again')
    }
  }
  const timer = setInterval(() => void readAgain(), READ_AGAIN_MS).unref()
  server.once('close', () => clearInterval(timer))
  return { server, certificateEnd: () => current.end }
}

async function read(files: TlsFiles): Promise<{ cert: string; key: string; end: Date }> {
  const [cert, key] = await Promise.all([readFile(files.cert, 'utf8'), readFile(files.key, 'utf8')])
  createSecureContext({ cert, key })
  return { cert, key, end: new X509Certificate(cert).validToDate }
}
