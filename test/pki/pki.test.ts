import { hash, X509Certificate } from 'node:crypto'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { networkInterfaces, tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, createServer } from 'node:tls'
import { assert, ipV6, property } from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { issueFrom, newAuthority, signCertificate } from '#pki'
import { keysFrom, signingKeysFrom } from '../../functions/etcd/operator/certificates.ts'
import { createPki, type Pki } from '../../packages/lab/pki.ts'

const validity = { now: new Date(), days: 1 }
const authority = newAuthority({ cn: 'test' }, validity)
const hasIPv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'))

describe('a certificate authority of its own', () => {
  let dir: string
  let pki: Pki
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'fl-pki-'))
    pki = await createPki(dir)
  })
  afterAll(() => rm(dir, { recursive: true }))

  const issued = async (...args: Parameters<Pki['issue']>): Promise<X509Certificate> =>
    new X509Certificate(await readFile((await pki.issue(...args)).certFile))

  it('signs itself, and certificates that are no authorities', async () => {
    const ca = new X509Certificate(pki.caPem)
    const leaf = await issued('leaf', { cn: 'leaf' })
    expect([ca.ca, ca.verify(ca.publicKey), leaf.ca, leaf.verify(ca.publicKey), leaf.checkIssued(ca)]).toEqual([
      true,
      true,
      false,
      true,
      true,
    ])
  })

  it('names the user and his groups as Kubernetes reads them', async () => {
    const admin = await issued('admin', { cn: 'admin', o: ['system:masters', 'others'] })
    expect(admin.subject).toBe('O=system:masters\nO=others\nCN=admin')
  })

  it('names the hosts and addresses of a server', async () => {
    const server = await issued('server', { cn: 'server' }, ['localhost', '127.0.0.1', '10.98.0.1'])
    expect(server.subjectAltName).toBe('DNS:localhost, IP Address:127.0.0.1, IP Address:10.98.0.1')
  })

  it('names an IPv6 address of a server as an address, however it is written', async () => {
    const server = await issued('server6', { cn: 'server' }, ['::1', 'fd00:0:0:10::A', '::ffff:10.0.0.1', '::'])
    expect(server.subjectAltName?.replaceAll('IP Address:', '').split(', ')).toEqual([
      '0:0:0:0:0:0:0:1',
      'FD00:0:0:10:0:0:0:A',
      '0:0:0:0:0:FFFF:A00:1',
      '0:0:0:0:0:0:0:0',
    ])
    expect(server.checkIP('::1')).toBe('::1')
    expect(server.checkHost('::1')).toBe(undefined)
    const known = property(ipV6(), (address) => {
      const request = { subject: { cn: 'any' }, sans: [address] }
      const { certificate } = issueFrom(authority, request, validity)
      expect(new X509Certificate(certificate).checkIP(address)).toBe(address)
    })
    assert(known, { numRuns: 20 })
  })

  it.skipIf(!hasIPv6)('is trusted by a client that connects to ::1', async () => {
    const { certificate: cert, privateKey } = issueFrom(
      authority,
      { subject: { cn: 'server' }, sans: ['::1'] },
      validity,
    )
    const server = createServer({ cert, key: privateKey.export({ type: 'pkcs8', format: 'pem' }) }, (socket) =>
      socket.end(),
    )
    await new Promise<void>((resolve) => server.listen(0, '::1', resolve))
    const { port } = server.address() as AddressInfo
    const socket = connect({ host: '::1', port, ca: authority.certificate })
    try {
      await new Promise((resolve, reject) => socket.once('secureConnect', resolve as () => void).once('error', reject))
      expect(socket.authorized).toBe(true)
    } finally {
      socket.destroy()
      server.close()
    }
  })

  it('keeps keys and kubeconfigs to its user', async () => {
    const { keyFile } = await pki.issue('secret', { cn: 'secret' })
    const kubeconfig = join(dir, 'kubeconfig')
    await pki.kubeconfig('secret', 'https://127.0.0.1:1', kubeconfig)
    for (const file of [keyFile, kubeconfig, pki.caKeyFile, pki.serviceAccountKey.keyFile]) {
      expect((await stat(file)).mode & 0o777).toBe(0o600)
    }
  })
})

describe('certificates of an earlier release are made again, byte for byte', () => {
  const { publicKey, privateKey } = signingKeysFrom('authority')
  const subject = { cn: 'ex CA 1', o: ['5b1f-ü', 'b'] }
  const issuer = { subject, publicKey, privateKey }
  const leaf = { issuer, publicKey: keysFrom('leaf').publicKey }
  const during = (from: string, to: string) => ({ notBefore: new Date(from), notAfter: new Date(to) })
  const sans = ['*.ex.default.svc', 'localhost', '127.0.0.1', 'fd00::1:0:0:a', '::1']

  it.each([
    [
      'of an authority, with times after 2050',
      {
        subject,
        issuer,
        publicKey,
        isCa: true,
        serial: Buffer.from('00000001', 'hex'),
        ...during('2026-11-21T04:05:06.789Z', '2051-01-01T00:00:00Z'),
      },
      '234c458bca2618a7589ccd52dd9cc539996f0de6bf0b4e64959321be10a75895',
    ],
    [
      'of a server, with a serial number that has the sign bit',
      {
        subject: { cn: 'etcd-server' },
        sans,
        ...leaf,
        serial: Buffer.from('ff000102030405060708090a0b0c0d0e', 'hex'),
        ...during('2026-11-21T04:05:06Z', '2027-11-21T04:05:06Z'),
      },
      'fd71b4066b34e375dcd7206e9c2f594d88f90c4420ff8e455969232e8508d682',
    ],
    [
      'of a client, with zeros in front of the serial number',
      {
        subject: { cn: 'client' },
        ...leaf,
        serial: Buffer.from('000000000000007f', 'hex'),
        ...during('2049-12-31T23:59:59Z', '2050-01-01T00:00:00Z'),
      },
      '467ade74ccb01b2ebf58c1f32c927ad0dd8478f5d13ce895e779a425c86c954a',
    ],
  ])('%s', (_, request, digest) => {
    expect(hash('sha256', signCertificate(request))).toBe(digest)
  })
})
