import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { connect, createServer } from 'node:tls'
import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import type { TlsSecret } from '../../cli/install/certificates.ts'
import { WEBHOOK_SECRETS, webhookCertificates } from '../../cli/install/webhook-certificates.ts'

const DAY_MS = 86_400_000
const AUTHORITY = WEBHOOK_SECRETS.authority
const LEAF = WEBHOOK_SECRETS.leaf
const HOST = 'fairlead-webhooks.fairlead-system.svc'

/** What is stored, and what API servers and pods use of it. */
class Installation {
  readonly secrets = new Map<string, KubeObject>()
  bundle = ''

  /** Returns what was written. */
  run(now: Date): string[] {
    const { authority, bundle, leaf } = webhookCertificates(this.secrets, now)
    for (const secret of [authority, leaf]) if (secret) this.secrets.set(secret.metadata.name, secret)
    this.bundle = bundle
    return [authority, leaf].flatMap((secret) => secret?.metadata.name ?? [])
  }

  of(name: string, key: 'tls.crt' | 'tls.key'): string {
    return Buffer.from((this.secrets.get(name) as TlsSecret).data[key], 'base64').toString()
  }
}

const certificatesIn = (pem: string): X509Certificate[] =>
  (pem.match(/-----BEGIN.*?-----END CERTIFICATE-----\n/gs) ?? []).map((one) => new X509Certificate(one))

/** Whether a client with these authorities takes the certificate, as path building in TLS does. */
function isTrusted(chain: string, bundle: string, now: Date): boolean {
  const isValid = ({ validFromDate, validToDate }: X509Certificate) => validFromDate <= now && now <= validToDate
  const [leaf, ...others] = certificatesIn(chain).filter(isValid)
  const roots = certificatesIn(bundle).filter(isValid)
  const signs = (one: X509Certificate, issuer: X509Certificate) =>
    one.issuer === issuer.subject && one.verify(issuer.publicKey)
  if (leaf === undefined) return false
  return roots.some((root) => signs(leaf, root) || others.some((one) => signs(leaf, one) && signs(one, root)))
}

it('a run each four weeks for 11 years never has a certificate that an API server does not trust', () => {
  const installation = new Installation()
  const written: string[] = []
  const [bundles, chains]: [string[], string[]] = [[], []]
  for (let run = 0; run < 11 * 13; run++) {
    const now = new Date(Date.UTC(2030, 0, 1) + run * 28 * DAY_MS)
    // API servers and pods have what was there before the run until they notice.
    const late = new Date(now.getTime() + DAY_MS / 2)
    written.push(...installation.run(now))
    bundles.push(installation.bundle)
    chains.push(installation.of(LEAF, 'tls.crt'))
    for (const bundle of bundles.slice(-2))
      for (const chain of chains.slice(-2)) expect([now, isTrusted(chain, bundle, late)]).toEqual([now, true])
  }
  // Each authority is written when it comes, and when the one before it goes.
  const authorities = written.filter((name) => name === AUTHORITY).length
  expect([authorities, new Set(bundles).size]).toEqual([3, 3])
  expect(certificatesIn(installation.bundle)).toHaveLength(1)
})

it('writes nothing while nothing is due, and heals what is lost or foreign', () => {
  const installation = new Installation()
  const now = new Date('2030-01-01T00:00:00Z')
  expect(installation.run(now)).toEqual([AUTHORITY, LEAF])
  expect(installation.run(now)).toEqual([])
  expect(installation.run(new Date(now.getTime() + 59 * DAY_MS))).toEqual([])
  expect(installation.run(new Date(now.getTime() + 61 * DAY_MS))).toEqual([LEAF])
  installation.secrets.delete(LEAF)
  expect(installation.run(now)).toEqual([LEAF])
  const [, before] = [installation.secrets.delete(AUTHORITY), installation.bundle]
  expect(installation.run(now)).toEqual([AUTHORITY, LEAF])
  // Pods use the certificate of before on until they have the new one.
  expect(installation.bundle).toContain(before)
  expect(installation.run(new Date(now.getTime() + 92 * DAY_MS))).toContain(AUTHORITY)
  expect(installation.bundle).not.toContain(before)
})

it('a lost key has no successor that it signs, and its certificates stay trusted until they end', () => {
  const installation = new Installation()
  const now = new Date('2030-01-01T00:00:00Z')
  installation.run(now)
  const former = installation.of(AUTHORITY, 'tls.crt')
  const secret = installation.secrets.get(AUTHORITY) as TlsSecret
  const key = installation.secrets.get(LEAF) as TlsSecret
  installation.secrets.set(AUTHORITY, { ...secret, data: { ...secret.data, 'tls.key': key.data['tls.key'] } })
  expect(installation.run(now)).toEqual([AUTHORITY, LEAF])
  expect(installation.bundle).toContain(former)
  expect(certificatesIn(installation.of(LEAF, 'tls.crt'))).toHaveLength(1)
})

it('TLS takes each certificate that is in use with each bundle of a change of the authority', async () => {
  const installation = new Installation()
  const days = (ago: number) => new Date(Date.now() - ago * DAY_MS)
  installation.run(days(3650 - 364))
  expect(installation.run(days(10))).toEqual([LEAF])
  const before = inUse(installation)
  expect(installation.run(days(0))).toEqual([AUTHORITY, LEAF])
  const after = inUse(installation)
  const alone = { ...after, bundle: installation.of(AUTHORITY, 'tls.crt') }
  const states = [
    [before, before],
    [before, after],
    [after, before],
    [after, after],
    [after, alone],
  ] as const
  const verdicts = states.map(([served, { bundle }]) => isAccepted(served, bundle))
  expect(await Promise.all(verdicts)).toEqual(states.map(() => true))
  expect(await isAccepted(before, alone.bundle)).toBe(false)
})

const inUse = (installation: Installation) => ({
  bundle: installation.bundle,
  cert: installation.of(LEAF, 'tls.crt'),
  key: installation.of(LEAF, 'tls.key'),
})

async function isAccepted({ cert, key }: { cert: string; key: string }, bundle: string): Promise<boolean> {
  const server = createServer({ cert, key }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const client = connect({ host: '127.0.0.1', port, ca: bundle, servername: HOST })
  try {
    await once(client, 'secureConnect')
    return client.authorized
  } catch {
    return false
  } finally {
    client.destroy()
    server.close()
  }
}
