import { writeFile } from 'node:fs/promises'
import { get } from 'node:https'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type EtcdTls, GRPC } from '#functions/etcd/client'
import { signCertificate } from '#pki'
import {
  type Issuer,
  issued,
  keysFrom,
  pemOf,
  signingKeysFrom,
  USES,
  validity,
} from '../../../../functions/etcd/operator/certificates.ts'
import { disableAuth, enableAuth, isAuthEnabled } from '../../../../functions/etcd/operator/external.ts'
import { EtcdCluster } from '../../../../functions/etcd/operator/resource.ts'
import { tlsOfMember } from '../../../../functions/etcd/operator/tls.ts'
import { SOON, TestEtcd } from '../../../support/etcd.ts'
import { shortTempDir } from '../../../support/servers.ts'

const object = EtcdCluster.parse(
  EtcdCluster.of({ metadata: { name: 'ex', namespace: 'default', uid: 'u1' }, spec: { size: 1, TLS: { auto: {} } } }),
)
const during = validity(new Date().toISOString(), 1)
const subject = { cn: 'ex CA 1' }
const signer = { subject, ...signingKeysFrom('drawn') }
const issuer: Issuer = { subject, key: pemOf(signer.privateKey) }
const ca = signCertificate({ subject, issuer: signer, publicKey: signer.publicKey, isCa: true, ...during })

const SERVER = { ca, servername: 'a.ex.default.svc' }
function operator(): EtcdTls {
  const { 'etcd-client.crt': cert = '', 'etcd-client.key': key = '' } = issued(object, 'operator', issuer, during)
  return { ...SERVER, cert, key }
}
function client(cn: string): EtcdTls {
  const keys = keysFrom(cn)
  return {
    ...SERVER,
    cert: signCertificate({ subject: { cn }, issuer: signer, ...keys, ...during }),
    key: pemOf(keys.privateKey),
  }
}

describe('users of a real etcd, whose certificates are those of the function', () => {
  let servers: TestEtcd
  let peers: string
  beforeAll(async () => {
    const dir = await shortTempDir()
    const files = { ...issued(object, 'member', issuer, during), [USES.member.bundle]: ca }
    for (const [file, text] of Object.entries(files)) await writeFile(join(dir, file), text)
    const of = (file: string): string => join(dir, file)
    servers = await TestEtcd.open(operator())
    await servers.name('a')
    peers = servers.peerUrl('a').replace('http:', 'https:')
    const { flags } = tlsOfMember(object)
    await servers.start('a', {
      args: [
        ...flags.map((flag) => flag.replace('/etc/etcdtls/member/tls/', `${of('')}/`)),
        `--listen-peer-urls=${peers}`,
        `--initial-advertise-peer-urls=${peers}`,
        `--initial-cluster=a=${peers}`,
      ],
    })
    await servers.serves('a')
  })
  afterAll(() => servers[Symbol.asyncDispose]())

  it('are demanded after any number of attempts, and then the function is root and others are refused', async () => {
    using root = servers.open('a')
    using other = servers.open('a', client('other'))
    // Simulates an attempt that ended after each of its calls.
    await root.call('userAdd', { name: 'root', options: { no_password: true } }, SOON)
    await enableAuth(root, SOON)
    await enableAuth(root, SOON)
    expect(await isAuthEnabled(root, SOON)).toBe(true)
    expect((await root.call('memberList', { linearizable: true }, SOON)).members).toHaveLength(1)
    const put = () => other.call('put', { key: Buffer.from('k'), value: Buffer.from('v') }, SOON)
    await expect(put()).rejects.toThrow('permission denied')
    await expect(other.call('memberAdd', { peerURLs: ['http://b:2380'], isLearner: true }, SOON)).rejects.toThrow(
      'user name not found',
    )
    await root.call('defragment', {}, SOON)
    await root.call('alarm', { action: 2, memberID: '0', alarm: 1 }, SOON)
    await expect(other.call('defragment', {}, SOON)).rejects.toThrow('user name not found')
    await disableAuth(root, SOON)
    await disableAuth(root, SOON)
    await put()
    expect(await isAuthEnabled(root, SOON)).toBe(false)
  })

  it('are no peers: the port of peers takes the certificate of a member, and none of a client', async () => {
    const statusFor = (tls: EtcdTls): Promise<number | undefined> =>
      new Promise((resolve, reject) => {
        const options = { ...tls, servername: 'localhost', agent: false as const }
        get(`${peers}/members`, options, (response) => resolve(response.resume().statusCode)).on('error', reject)
      })
    const { 'peer.crt': cert = '', 'peer.key': key = '' } = issued(object, 'member', issuer, during)
    expect(await statusFor({ ca, cert, key })).toBe(200)
    await expect(statusFor(operator())).rejects.toThrow(/certificate|ECONNRESET|hang up/)
  })

  it('are told apart from members that are silent: a certificate of another authority is refused at once', async () => {
    const other = signingKeysFrom('other')
    const { publicKey, privateKey } = keysFrom('x')
    const cert = signCertificate({ subject: { cn: 'root' }, issuer: { subject, ...other }, publicKey, ...during })
    using stranger = servers.open('a', { ...SERVER, cert, key: pemOf(privateKey) })
    await expect(stranger.call('status', {}, SOON)).rejects.toMatchObject({ code: GRPC.unavailable })
  })

  it('are known by the certificate that the member shows', async () => {
    using root = servers.open('a')
    await root.call('status', {}, SOON)
    expect(root.certificate?.issuer).toBe('CN=ex CA 1')
  })
})
