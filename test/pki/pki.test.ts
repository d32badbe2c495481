import { X509Certificate } from 'node:crypto'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { networkInterfaces, tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect, createServer } from 'node:tls'
import { assert, ipV6, property, uint8Array } from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { issueFrom, newAuthority } from '#pki'
import { integer, oid, time } from '../../kube/pki/der.ts'
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

describe('DER', () => {
  it('writes integers without needless zeros, and never as negative ones', () => {
    assert(
      property(uint8Array({ minLength: 1, maxLength: 100 }), (bytes) => {
        const [tag, size = 0, ...content] = integer(Buffer.from(bytes))
        expect([tag, size]).toEqual([0x02, content.length])
        expect(content[0]).toBeLessThan(0x80)
        expect(content.length > 1 && content[0] === 0 && (content[1] ?? 0) < 0x80).toBe(false)
        expect(BigInt(`0x${Buffer.from(content).toString('hex')}`)).toBe(
          BigInt(`0x${Buffer.from(bytes).toString('hex')}`),
        )
      }),
    )
  })

  it('writes object identifiers with numbers above 127', () => {
    expect(oid('1.2.840.10045.4.3.2').toString('hex')).toBe('06082a8648ce3d040302')
  })

  it('writes times to the second', () => {
    expect(time(new Date('2026-11-21T04:05:06.789Z')).toString('latin1').slice(2)).toBe('261121040506Z')
  })
})
