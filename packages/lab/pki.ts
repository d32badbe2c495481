import type { KeyObject } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Subject } from '#pki'
import { issueFrom, newAuthority, newKeys } from '#pki'

/** The certificate authority of one cluster, in a folder of its own: NAME.crt and NAME.key beside ca.crt. */
export interface Pki {
  dir: string
  caFile: string
  caKeyFile: string
  caPem: string
  /** Issues a certificate for clients and servers; `sans` are the addresses and names of a server. */
  issue(name: string, subject: Subject, sans?: readonly string[]): Promise<CertificateFiles>
  /** Writes a kubeconfig that contains the certificate with that name. */
  kubeconfig(name: string, server: string, file: string): Promise<void>
  serviceAccountKey: { keyFile: string; pubFile: string }
}

export interface CertificateFiles {
  certFile: string
  keyFile: string
}

const DAYS_VALID = 365
const CA: Subject = { cn: 'fairlead-local-ca' }

export async function createPki(dir: string, now = new Date()): Promise<Pki> {
  await mkdir(dir, { recursive: true, mode: 0o700 })
  const validity = { now, days: DAYS_VALID }
  const ca = newAuthority(CA, validity)
  const caPem = ca.certificate
  const caFile = join(dir, 'ca.crt')
  const caKeyFile = join(dir, 'ca.key')
  const serviceAccountKey = { keyFile: join(dir, 'service-accounts.key'), pubFile: join(dir, 'service-accounts.pub') }
  const signer = newKeys()
  await Promise.all([
    writeFile(caFile, caPem),
    writeFile(caKeyFile, privatePem(ca.privateKey), { mode: 0o600 }),
    writeFile(serviceAccountKey.keyFile, privatePem(signer.privateKey), { mode: 0o600 }),
    writeFile(serviceAccountKey.pubFile, signer.publicKey.export({ type: 'spki', format: 'pem' })),
  ])

  return {
    dir,
    caFile,
    caKeyFile,
    caPem,
    serviceAccountKey,
    async issue(name, subject, sans = []) {
      const { certFile, keyFile } = certificateFiles(dir, name)
      const { certificate, privateKey } = issueFrom(ca, { subject, sans }, validity)
      await Promise.all([writeFile(certFile, certificate), writeFile(keyFile, privatePem(privateKey), { mode: 0o600 })])
      return { certFile, keyFile }
    },
    async kubeconfig(name, server, file) {
      const { certFile, keyFile } = certificateFiles(dir, name)
      const [cert, key] = await Promise.all([readFile(certFile), readFile(keyFile)])
      await writeFile(file, kubeconfigOf({ name, server, ca: caPem, cert, key }), { mode: 0o600 })
    },
  }
}

function certificateFiles(dir: string, name: string): CertificateFiles {
  return { certFile: join(dir, `${name}.crt`), keyFile: join(dir, `${name}.key`) }
}

/** SEC 1 is the form of EC keys that all Kubernetes servers read. */
function privatePem(key: KeyObject): string | Buffer {
  return key.export({ type: 'sec1', format: 'pem' })
}

interface Login {
  name: string
  server: string
  ca: string
  cert: Buffer
  key: Buffer
}

/** Returns JSON: readers of kubeconfig files accept it, since they read YAML. */
function kubeconfigOf({ name, server, ca, cert, key }: Login): string {
  const user = { 'client-certificate-data': cert.toString('base64'), 'client-key-data': key.toString('base64') }
  const cluster = { server, 'certificate-authority-data': Buffer.from(ca).toString('base64') }
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'fairlead-local', cluster }],
    users: [{ name, user }],
    contexts: [{ name: 'fairlead-local', context: { cluster: 'fairlead-local', user: name } }],
    'current-context': 'fairlead-local',
  }
  return `${JSON.stringify(config, null, 2)}\n`
}
