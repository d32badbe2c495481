import { X509Certificate } from 'node:crypto'
import { expect, it } from 'vitest'
import { certificateSecrets, natsCertificates, type TlsSecret } from '../../cli/install/certificates.ts'

const NOW = new Date('2030-01-01T00:00:00Z')
const inDays = (days: number) => new Date(NOW.getTime() + days * 86_400_000)
const byName = (secrets: readonly TlsSecret[]) => new Map(secrets.map((secret) => [secret.metadata.name, secret]))
const namesOf = (secrets: readonly TlsSecret[]) => secrets.map(({ metadata }) => metadata.name)
const certificateIn = ({ data }: TlsSecret) => new X509Certificate(Buffer.from(data['tls.crt'], 'base64'))
const CERTIFICATE_SECRETS = certificateSecrets()
const LEAVES = CERTIFICATE_SECRETS.slice(1)

const all = byName(natsCertificates(new Map(), NOW))

it('where nothing is, all are made, each of the one authority and for its own names', () => {
  expect([...all.keys()]).toEqual(CERTIFICATE_SECRETS)
  const [authority, ...leaves] = [...all.values()].map(certificateIn)
  for (const leaf of leaves) expect(leaf.checkIssued(authority!) && leaf.verify(authority!.publicKey)).toBe(true)
  expect(certificateIn(all.get('fairlead-nats-bridge')!).subjectAltName).toBe('DNS:fairlead-bridge')
  expect(certificateIn(all.get('fairlead-nats-dispatcher')!).subjectAltName).toBe('DNS:fairlead-dispatcher')
  expect(certificateIn(all.get('fairlead-nats-server')!).checkHost('fairlead-nats.fairlead-system.svc')).toBeDefined()
})

it('what is there stays until a month before its end', () => {
  expect(natsCertificates(all, inDays(334))).toEqual([])
  expect(namesOf(natsCertificates(all, inDays(336)))).toEqual(LEAVES)
  expect(namesOf(natsCertificates(all, inDays(3250)))).toEqual(LEAVES)
  // What it would issue now would outlive it.
  expect(namesOf(natsCertificates(all, inDays(3260)))).toEqual(CERTIFICATE_SECRETS)
})

it('what was made by a clock that is ahead is made anew', () => {
  expect(namesOf(natsCertificates(all, inDays(-700)))).toEqual(CERTIFICATE_SECRETS)
})

it('what is missing, cannot be read, is of another authority or for other names, is made anew, and nothing else', () => {
  const other = byName(natsCertificates(new Map(), NOW)).get('fairlead-nats-bridge')!
  const broken = { ...other, data: { ...other.data, 'tls.crt': 'AAAA' } }
  const { 'fairlead-nats-bridge': bridge, ...without } = Object.fromEntries(all)
  const withoutAuthority = { ...bridge!, data: { ...bridge!.data, 'ca.crt': '' } }
  const ofOther = { ...all.get('fairlead-nats-dispatcher')!, metadata: other.metadata }
  for (const present of [
    without,
    { ...without, [other.metadata.name]: ofOther },
    { ...without, [other.metadata.name]: withoutAuthority },
    { ...without, [other.metadata.name]: other },
    { ...without, [other.metadata.name]: broken },
  ]) {
    const [made, ...others] = natsCertificates(new Map(Object.entries(present)), NOW)
    expect(others).toEqual([])
    expect(made?.metadata.name).toBe(bridge?.metadata.name)
    expect(made?.data['ca.crt']).toBe(bridge?.data['ca.crt'])
  }
})
